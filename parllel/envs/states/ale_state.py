"""The state of ale_py's Atari environments.

The emulator serialises itself, random numbers included, but for one thing: with sticky actions, the action
that is repeated. There is no way to read it, so it is found by trial: the next frames are played with the
hidden action, then from the same point with each action in its place, until the games agree. As the
draws to come are part of the state, actions that agree are the same for all that follows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from parllel.envs.states.layer_state import NoStateError
from parllel.types import State

# How likely it may be, at most, that an action still sticks after the frames that are played.
_UNLIKELY = 1e-12


class AtariState:
    """The state of an AtariEnv. The last screen is not included, as the next step draws a new one."""

    def state(self, layer: Any) -> State:
        """Return the emulator's own serialisation as [bytes] uint8, and the action that would stick."""
        ale = layer.ale
        if layer.continuous and _stickiness(ale):
            raise NoStateError(
                "it has continuous sticky actions, whose repeated strength cannot be saved"
            )
        # Without the random numbers, which are left out by default, sticky actions would differ from here on.
        saved = ale.cloneState(include_rng=True)
        return {
            "game": str(layer._game),
            # A copy, as `frombuffer` gives a read-only view.
            "emulator": np.frombuffer(saved.serialize(), np.uint8).copy(),
            "action": _find_action(ale, saved),
        }

    def load_state(self, layer: Any, state: State) -> None:
        """Restore the emulator."""
        from ale_py import ALEState

        content, action = state["emulator"], state["action"]
        if state["game"] != layer._game:
            raise ValueError(
                f"expected a state of the game {layer._game!r}, got one of {state['game']!r}"
            )
        if not isinstance(content, np.ndarray) or content.dtype != np.uint8 or content.ndim != 1:
            raise ValueError(f"emulator: expected [bytes] uint8, got {content!r}")
        legal = [int(legal.value) for legal in layer.ale.getLegalActionSet()]
        if isinstance(action, bool) or action not in legal:
            raise ValueError(f"action: expected one of {legal}, got {action!r}")
        try:
            saved = ALEState(content.tobytes())
            # First, as it plays frames: restoring leaves the sticky action alone, and undoes all else.
            _set_action(layer.ale, action)
            layer.ale.restoreState(saved)
        except Exception as error:  # the emulator's own, of whatever class
            raise ValueError(f"the emulator's state cannot be read: {error}") from error
        # It silently continues with half of what it could read.
        if layer.ale.cloneState(include_rng=True).serialize() != content.tobytes():
            raise ValueError("the emulator loaded a state that differs from the saved one")


def _find_action(ale: Any, saved: Any) -> int:
    """Return an action that, if it sticks, does what the hidden one does; leave the game as it was."""
    if _stickiness(ale) == 0.0 or ale.game_over():
        return 0  # never repeated, or forgotten in the reset that is next
    frames = _frames(ale)
    expected = _play(ale, frames)
    for action in (int(legal.value) for legal in ale.getLegalActionSet()):
        _set_action(ale, action)
        ale.restoreState(saved)
        if _play(ale, frames) == expected:
            _set_action(ale, action)
            ale.restoreState(saved)
            return action
    raise NoStateError(
        "its sticky action cannot be determined, because no legal action continues the game in the "
        "same way"
    )


def _play(ale: Any, frames: int) -> list[bytes]:
    """Return the states of the next frames without a button."""
    states = []
    for _ in range(frames):
        ale.act(0)
        states.append(ale.cloneState(include_rng=True).serialize())
    return states


def _set_action(ale: Any, action: int) -> None:
    """Make `action` the one that sticks: after so many frames some draw took it."""
    for _ in range(_frames(ale)):
        ale.act(action)


def _frames(ale: Any) -> int:
    """Return after how many frames it is next to impossible that an action still sticks."""
    stickiness = _stickiness(ale)
    if stickiness == 0.0:
        return 1
    # At a stickiness of 1 the logarithm is 0, and no number of frames would do.
    return min(1000, math.ceil(math.log(_UNLIKELY) / math.log(min(stickiness, 0.999))))


def _stickiness(ale: Any) -> float:
    return float(ale.getFloat("repeat_action_probability"))
