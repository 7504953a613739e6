"""A trained policy, or any specification of one, as something that acts."""

from parllel.policies.constant_policy import ConstantPolicy
from parllel.policies.function_policy import FunctionPolicy
from parllel.policies.label_actions import LabelActions
from parllel.policies.load_policy import load_policy
from parllel.policies.opponent_env import OpponentEnv
from parllel.policies.play_episodes import Episode, play_episodes
from parllel.policies.policy import Policy
from parllel.policies.policy_agent import PolicyAgent
from parllel.policies.policy_file import policy_in_file, policy_in_module
from parllel.policies.random_policy import RandomPolicy
from parllel.policies.run_policy import RunPolicy
from parllel.policies.specification import code_of, policy_of, register_scheme

__all__ = [
    "ConstantPolicy",
    "Episode",
    "FunctionPolicy",
    "LabelActions",
    "OpponentEnv",
    "Policy",
    "PolicyAgent",
    "RandomPolicy",
    "RunPolicy",
    "code_of",
    "load_policy",
    "play_episodes",
    "policy_in_file",
    "policy_in_module",
    "policy_of",
    "register_scheme",
]
