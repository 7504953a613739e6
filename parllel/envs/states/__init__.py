"""The states of environments in checkpoints: arrays and JSON values, or a refusal."""

from parllel.envs.states.env_state import (
    env_state,
    load_env_state,
    load_state_as,
    missing_env_state,
    state_as,
)
from parllel.envs.states.layer_state import NoStateError
from parllel.envs.states.pickled_state import PickledState

__all__ = [
    "NoStateError",
    "PickledState",
    "env_state",
    "load_env_state",
    "load_state_as",
    "missing_env_state",
    "state_as",
]
