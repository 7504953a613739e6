"""The wrappers and environments of others whose state is known.

They are known by the name of their class, exactly: a subclass may keep more than its parent, and nothing
would show it. By name, too, so that no library is imported for the sake of knowing its classes.
"""

from __future__ import annotations

import numbers
import time
from typing import Any

import numpy as np

from parllel.envs.states import mpe_state
from parllel.envs.states.ale_state import AtariState
from parllel.envs.states.layer_state import (
    AttributeState,
    LayerState,
    NoStateError,
    NumericAttribute,
)
from parllel.envs.states.mujoco_state import MujocoState
from parllel.envs.states.pickled_state import PickleState
from parllel.envs.states.plain_values import plain_copy
from parllel.types import State


class ParallelEnvState:
    """The state of an adapter: which agents act next, which were terminated, and the environment inside.

    The state of the environment inside comes from the methods `state()` and `load_state(state)` of
    its class, if it has both (PettingZoo defines a `state()` for another purpose). The states of
    mpe2's environments are known.
    """

    def state(self, layer: Any) -> State:
        """Return the state of the adapter and of the environment inside."""
        inside = layer.parallel_env
        cls = type(inside)
        if _says_itself(cls):
            # Through the class, as an attribute of the environment may have that name.
            answer = cls.state(inside)
            if not isinstance(answer, dict):
                raise TypeError(f"{cls.__name__}.state(): expected a dict, got {answer!r}")
            world = plain_copy(answer, f"{cls.__name__}.state()")
        elif mpe_state.knows(inside):
            world = mpe_state.parallel_state(inside)
        else:
            raise NoStateError(
                f"the state of the {cls.__name__} inside cannot be saved; give its class methods state() "
                "and load_state(state)"
            )
        return {
            "live": list(layer._live),
            # JSON has no sets, and equal states must be equal lists.
            "terminated": sorted(layer._terminated),
            "class": cls.__qualname__,
            "inside": world,
        }

    def load_state(self, layer: Any, state: State) -> None:
        """Restore a state returned by `state`."""
        inside = layer.parallel_env
        cls = type(inside)
        if state["class"] != cls.__qualname__:
            raise ValueError(f"expected the state of a {cls.__qualname__}, got {state['class']!r}")
        for name in ("live", "terminated"):
            if not isinstance(state[name], list) or not set(state[name]) <= set(layer.agents):
                raise ValueError(
                    f"{name}: expected a list of agents from {layer.agents}, got {state[name]!r}"
                )
        if _says_itself(cls):
            cls.load_state(inside, plain_copy(state["inside"]))
        else:
            mpe_state.load_parallel_state(inside, state["inside"])
        # Last, as loading what is inside may be refused.
        layer._live = list(state["live"])
        layer._terminated = set(state["terminated"])


def _says_itself(cls: type[Any]) -> bool:
    return all(callable(getattr(cls, name, None)) for name in ("state", "load_state"))


# numbers.Integral has numpy's integers and bools too, which is all right.
INT = numbers.Integral
FLAG = bool | np.bool_


class CheckerState(AttributeState):
    """Which of its first calls a PassiveEnvChecker has checked.

    It also compares what the first calls return, to see whether memory is used twice. What they returned is
    not saved; that check is taken as done.
    """

    def __init__(self) -> None:
        super().__init__({"checked_reset": FLAG, "checked_step": FLAG, "checked_render": FLAG})

    def load_state(self, layer: Any, state: State) -> None:
        """Mark what was checked."""
        super().load_state(layer, state)
        # Older versions of gymnasium do not have that check.
        if layer.checked_reset and hasattr(layer, "checked_data_reuse"):
            layer.checked_data_reuse = True
            layer._previous_data = (None, {})  # read once more, by the first step after a reset


class StatisticsState(AttributeState):
    """The counts of RecordEpisodeStatistics; the clock continues from the time that had passed."""

    def __init__(self) -> None:
        queues = dict.fromkeys(("time_queue", "return_queue", "length_queue"), list)
        counts = {"episode_count": INT, "episode_returns": object, "episode_lengths": INT}
        super().__init__({**counts, **queues})

    def state(self, layer: Any) -> State:
        """Return counts, queues, and the seconds since the episode began (None before the first)."""
        start = layer.episode_start_time
        # `perf_counter` counts from another moment in each process, so only a difference can be saved.
        elapsed_s = None if start < 0 else time.perf_counter() - start
        return {"counts": super().state(layer), "elapsed_s": elapsed_s}

    def load_state(self, layer: Any, state: State) -> None:
        """Restore a state returned by `state`."""
        super().load_state(layer, state["counts"])
        elapsed_s = state["elapsed_s"]
        if elapsed_s is not None:
            layer.episode_start_time = time.perf_counter() - float(elapsed_s)


_MEAN = np.ndarray | np.floating | float  # of no dimension, an array becomes a number
_RUNNING = {"mean": _MEAN, "var": _MEAN, "count": numbers.Real}
_PLACE = {"s": INT, "lastaction": object}  # a cell of a table, and what is drawn of the last move

_WRAPPERS: dict[str, LayerState] = {
    "atari_preprocessing.AtariPreprocessing": AttributeState(
        {"obs_buffer": list, "lives": INT, "game_over": FLAG}
    ),
    "common.Autoreset": AttributeState({"autoreset": FLAG}),
    "common.OrderEnforcing": AttributeState({"_has_reset": FLAG}),
    "common.PassiveEnvChecker": CheckerState(),
    "common.RecordEpisodeStatistics": StatisticsState(),
    "common.TimeLimit": AttributeState({"_elapsed_steps": INT | None}),
    "stateful_action.StickyAction": AttributeState(
        {
            "last_action": object,
            "is_sticky_actions": FLAG,
            "num_repeats": INT,
            "repeats_taken": INT,
        }
    ),
    "stateful_observation.DelayObservation": AttributeState({"observation_queue": list}),
    "stateful_observation.FrameStackObservation": AttributeState({"obs_queue": list}),
    # The second of its frames is an old one when an episode ends on the first.
    "stateful_observation.MaxAndSkipObservation": AttributeState({"_obs_buffer": np.ndarray}),
    "stateful_observation.NormalizeObservation": AttributeState(
        {
            **{f"obs_rms.{name}": kind for name, kind in _RUNNING.items()},
            "_update_running_mean": FLAG,
        }
    ),
    "stateful_observation.TimeAwareObservation": AttributeState({"timesteps": INT}),
    "stateful_reward.NormalizeReward": AttributeState(
        {
            **{f"return_rms.{name}": kind for name, kind in _RUNNING.items()},
            "discounted_reward": np.ndarray,
            "_update_running_mean": FLAG,
        }
    ),
}

# Functions given to the Transform wrappers are assumed to have no state of their own.
_STATELESS_WRAPPERS = (
    "array_conversion.ArrayConversion",
    "jax_to_numpy.JaxToNumpy",
    "jax_to_torch.JaxToTorch",
    "numpy_to_torch.NumpyToTorch",
    "rendering.AddWhiteNoise",
    "rendering.HumanRendering",
    "rendering.ObstructView",
    "stateful_action.RepeatAction",
    "transform_action.ClipAction",
    "transform_action.DiscretizeAction",
    "transform_action.RescaleAction",
    "transform_action.TransformAction",
    "transform_observation.AddRenderObservation",
    "transform_observation.DiscretizeObservation",
    "transform_observation.DtypeObservation",
    "transform_observation.FilterObservation",
    "transform_observation.FlattenObservation",
    "transform_observation.GrayscaleObservation",
    "transform_observation.RescaleObservation",
    "transform_observation.ReshapeObservation",
    "transform_observation.ResizeObservation",
    "transform_observation.TransformObservation",
    "transform_reward.ClipReward",
    "transform_reward.TransformReward",
)

_ENVIRONMENTS: dict[str, LayerState] = {
    "classic_control.acrobot.AcrobotEnv": AttributeState({"state": NumericAttribute((4,))}),
    "classic_control.cartpole.CartPoleEnv": AttributeState(
        {"state": NumericAttribute((4,)), "steps_beyond_terminated": INT | None}
    ),
    "classic_control.cartpole.CartPoleVectorEnv": AttributeState(
        {
            "state": np.ndarray | None,
            "steps": np.ndarray,
            "prev_done": np.ndarray,
            "low": numbers.Real,
            "high": numbers.Real,
        }
    ),
    "classic_control.continuous_mountain_car.Continuous_MountainCarEnv": AttributeState(
        {"state": NumericAttribute((2,))}
    ),
    "classic_control.mountain_car.MountainCarEnv": AttributeState(
        {"state": NumericAttribute((2,))}
    ),
    "classic_control.pendulum.PendulumEnv": AttributeState(
        {"state": NumericAttribute((2,)), "last_u": object}
    ),
    "toy_text.blackjack.BlackjackEnv": AttributeState(
        {
            "dealer": list,
            "player": list,
            "dealer_top_card_suit": str,
            "dealer_top_card_value_str": str,
        }
    ),
    "toy_text.cliffwalking.CliffWalkingEnv": AttributeState(_PLACE),
    "toy_text.frozen_lake.FrozenLakeEnv": AttributeState(_PLACE),
    "toy_text.taxi.TaxiEnv": AttributeState(
        {**_PLACE, "fickle_step": FLAG, "taxi_orientation": INT}
    ),
}

_KNOWN: dict[str, LayerState] = {
    **{f"gymnasium.wrappers.{name}": known for name, known in _WRAPPERS.items()},
    **{f"gymnasium.wrappers.{name}": AttributeState() for name in _STATELESS_WRAPPERS},
    **{f"gymnasium.envs.{name}": known for name, known in _ENVIRONMENTS.items()},
    "ale_py.env.AtariEnv": AtariState(),
    "parllel.envs.parallel_env_adapter.ParallelEnvAdapter": ParallelEnvState(),
    "parllel.envs.states.pickled_state.PickledState": PickleState(),
}
_MUJOCO = MujocoState()


def known_state(cls: type[Any]) -> LayerState | None:
    """Return what knows the state of layers of exactly this class, None if nothing does."""
    if cls.__module__.startswith("gymnasium.envs.mujoco."):
        # All of them, in whatever version: they keep their state in MjData and a few known attributes.
        # A user's subclass is in a module of its own, and not covered.
        if any(base.__name__ == "MujocoEnv" for base in cls.__mro__):
            return _MUJOCO
        return None
    return _KNOWN.get(f"{cls.__module__}.{cls.__qualname__}")
