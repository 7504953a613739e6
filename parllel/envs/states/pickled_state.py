"""Pickle, where a user allows it for what nothing else can save."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle

from parllel.envs.states.layer_state import NoStateError
from parllel.types import State


class PickledState(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that saves the state of `env` as a pickle, made by cloudpickle.

    Loading such a state unpickles it, and a pickle can run any code: **load only checkpoints that
    you made yourself**. Nothing is unpickled unless the environment factory uses this wrapper.

    Put it directly around the layer that cannot save its state; wrappers outside of it are saved
    without pickle. Environments that gymnasium's EzPickle pickles by the arguments of their
    constructors, such as all of MuJoCo's, would lose their state, and are refused when it is asked
    for.
    """


class PickleState:
    """The state of a PickledState wrapper and of everything inside it."""

    def state(self, layer: PickledState) -> State:
        """Return the pickle as [bytes] uint8."""
        import cloudpickle

        for inner in _layers(layer.env):
            # By hand: a subclass that overrides it may well pickle all of itself.
            if getattr(type(inner), "__getstate__", None) is EzPickle.__getstate__:
                raise NoStateError(
                    f"{type(inner).__name__} pickles only its constructor arguments (EzPickle), "
                    "not its state"
                )
        try:
            content = cloudpickle.dumps(layer.env)
        except Exception as error:  # pickling runs code of every class inside
            raise NoStateError(f"it cannot be pickled: {error}") from error
        return {"pickle": np.frombuffer(content, np.uint8).copy()}

    def load_state(self, layer: PickledState, state: State) -> None:
        """Replace the environment inside by the unpickled one, and close the old one."""
        import cloudpickle

        content = state["pickle"]
        if not isinstance(content, np.ndarray) or content.dtype != np.uint8 or content.ndim != 1:
            raise ValueError(f"expected a pickle as [bytes] uint8, got {content!r}")
        try:
            env = cloudpickle.loads(content.tobytes())
        except Exception as error:  # damaged bytes raise whatever they seem to ask for
            raise ValueError(f"the pickle cannot be read: {error}") from error
        expected, came = [
            [type(part).__qualname__ for part in _layers(whole)] for whole in (layer.env, env)
        ]
        if expected != came:
            raise ValueError(f"expected the pickle of {expected}, got the pickle of {came}")
        # Closed only after the new one is in its place: closing may raise.
        old, layer.env = layer.env, env
        old.close()


def _layers(env: Any) -> list[Any]:
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers
