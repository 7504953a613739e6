"""A trained policy, or any specification of one, as something that acts."""

from parllel.policies.opponent_env import OpponentEnv
from parllel.policies.policy import Policy
from parllel.policies.policy_agent import PolicyAgent

__all__ = ["OpponentEnv", "Policy", "PolicyAgent"]
