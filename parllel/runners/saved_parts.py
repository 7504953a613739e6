"""State of a run's parts and of the global random generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parllel.agents.agent import Agent
from parllel.algos.algorithm import Algorithm
from parllel.replays.replay import Replay
from parllel.runners.callback import Callback
from parllel.samplers.sampler import Sampler
from parllel.types import State, class_path

REPLAY = "replay"
_OWN_PARTS = ("sampler", "algorithm", "eval_sampler", REPLAY)


class SavedParts:
    """Saves and loads the parts of a run by name.

    Args:
        others: parts besides sampler and algorithm.
        sampler, algorithm, eval_sampler: the run's sampler, algorithm and evaluation sampler.
            `algorithm.agent` is saved as "agent" if it is an Agent and not among the others.
        callbacks: the run's callbacks; the list may change.
        replay: the run's replay, saved as "replay" and loaded if the state has it.

    Raises:
        ValueError: if one of `others` has a reserved name.
    """

    def __init__(
        self,
        others: Mapping[str, Any],
        sampler: Sampler,
        algorithm: Algorithm,
        eval_sampler: Sampler | None,
        callbacks: Sequence[Callback],
        replay: Replay | None = None,
    ) -> None:
        for name in _OWN_PARTS:
            if name in others:
                raise ValueError(
                    f"state_parts: {name!r} is a name that the runner uses itself; rename it"
                )
        self._others = dict(others)
        self._algorithm = algorithm
        self._own: dict[str, Any] = {"sampler": sampler, "algorithm": algorithm}
        if replay is not None:
            # Before the sampler, which writes the rows that the next batch begins with into the batch that
            # the replay has restored.
            self._own = {REPLAY: replay, **self._own}
        if eval_sampler is not None:
            self._own["eval_sampler"] = eval_sampler
        # Not a copy: scripts append callbacks that need the runner, which is created after this.
        self._callbacks = callbacks

    def state(self, *, replay: bool = True) -> State:
        """Return the states of all parts and callbacks, with the replay's or without."""
        parts = self._parts()
        if not replay:
            parts.pop(REPLAY, None)
        return {
            "algorithm_classes": _classes(self._algorithm),
            "parts": {name: part.state() for name, part in parts.items()},
            "callbacks": {name: one.state() for name, one in self._named_callbacks().items()},
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if the state does not fit. The message names the part.
        """
        parts, saved = self._parts(), state["parts"]
        if REPLAY not in saved:
            parts.pop(REPLAY, None)
        if set(parts) != set(saved):
            raise ValueError(f"expected the states of {sorted(parts)}, got {sorted(saved)}")
        # Algorithms with the same optimiser have states of the same form. A subclass goes on from its parent.
        came, own = state.get("algorithm_classes"), _classes(self._algorithm)
        if came is not None and came[0] not in own and own[0] not in came:
            raise ValueError(
                f"algorithm: expected the state of {own[0]}, got the state of {came[0]}"
            )
        for name, part in parts.items():
            _load(name, part, saved[name])
        # Callbacks may be added to a run: one that is not in the checkpoint starts afresh.
        for name, callback in self._named_callbacks().items():
            if name in state["callbacks"]:
                _load(name, callback, state["callbacks"][name])

    def _parts(self) -> dict[str, Any]:
        parts = dict(self._others)
        agent = getattr(self._own["algorithm"], "agent", None)
        # Without it a resumed run would silently begin with new weights. It comes first, as its message about
        # a model of another shape is the plainest.
        if isinstance(agent, Agent) and not any(part is agent for part in parts.values()):
            parts = {"agent": agent, **parts}
        return {**parts, **self._own}

    def _named_callbacks(self) -> dict[str, Callback]:
        """Return the callbacks by class and number, which those of other classes do not change."""
        names = [type(callback).__name__ for callback in self._callbacks]
        numbered = [f"{name}_{names[:i].count(name)}" for i, name in enumerate(names)]
        return dict(zip(numbered, self._callbacks, strict=True))


def _load(name: str, part: Any, state: State) -> None:
    try:
        part.load_state(state)
    except KeyError as error:
        if error.args[:1] and error.args[0] not in state:
            raise ValueError(
                f"{name}: {class_path(part)} needs {error.args[0]!r}, but the state has only "
                f"{sorted(state)}: it was saved by a part of another class"
            ) from error
        raise ValueError(f"{name}: KeyError: {error}") from error
    # What parts raise for a state of another shape; anything else keeps its own type.
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from error


def _classes(algorithm: Algorithm) -> list[str]:
    """Return the names of the algorithm's class and of those that it inherits from, Algorithm excluded."""
    found = [cls.__name__ for cls in type(algorithm).__mro__ if issubclass(cls, Algorithm)]
    # One that is not derived from the interface counts by its own name.
    return found[:-1] or [type(algorithm).__name__]


def random_state() -> State:
    """Return the states of Python's, numpy's and, if it has been imported, torch's global generators.

    parllel itself does not draw from these generators, but your environments and models may. Of
    torch's generators, only the one of the CPU is included.
    """
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()
    state: State = {
        # An array, as 625 numbers would fill pages of JSON.
        "python": {"version": version, "words": np.array(words, np.uint64), "gauss": gauss},
        "numpy": {
            "name": name,
            "keys": np.array(keys),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
    }
    # Not imported for this: what has not been imported has not drawn anything.
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().numpy().copy()
    return state


def load_random_state(state: State) -> None:
    """Restore a state returned by `random_state`."""
    python, legacy = state["python"], state["numpy"]
    words = tuple(int(word) for word in python["words"])
    random.setstate((python["version"], words, python["gauss"]))
    np.random.set_state(
        (
            legacy["name"],
            legacy["keys"],
            legacy["position"],
            legacy["has_gauss"],
            legacy["cached"],
        )
    )
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(torch.from_numpy(np.array(state["torch"], np.uint8)))
