"""A trained policy, or any specification of one, as something that acts."""

from parllel.policies.load_policy import load_policy
from parllel.policies.opponent_env import OpponentEnv
from parllel.policies.policy import Policy
from parllel.policies.policy_agent import PolicyAgent
from parllel.policies.run_policy import RunPolicy

__all__ = ["OpponentEnv", "Policy", "PolicyAgent", "RunPolicy", "load_policy"]
