"""Policies: trained ones, and everything else that a specification can name."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.lazy_names import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from parllel.policies.env_names import env_named
    from parllel.policies.episodes import Episode, play_episodes
    from parllel.policies.label_actions import LabelActions
    from parllel.policies.opponent_env import OpponentEnv
    from parllel.policies.policy import Policy
    from parllel.policies.policy_agent import PolicyAgent
    from parllel.policies.policy_loading import load_policy
    from parllel.policies.specification import policy_of, register_scheme

__all__ = [
    "Episode",
    "LabelActions",
    "OpponentEnv",
    "Policy",
    "PolicyAgent",
    "env_named",
    "load_policy",
    "play_episodes",
    "policy_of",
    "register_scheme",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "env_names": ("env_named",),
        "episodes": (
            "Episode",
            "play_episodes",
        ),
        "label_actions": ("LabelActions",),
        "opponent_env": ("OpponentEnv",),
        "policy": ("Policy",),
        "policy_agent": ("PolicyAgent",),
        "policy_loading": ("load_policy",),
        "specification": (
            "policy_of",
            "register_scheme",
        ),
    },
)
