"""Does what an agent decides fit what environments take? Asked before anything is sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from parllel.agents.agent import Agent
from parllel.buffers.paths import parts_of
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.types import Tree


def check_action_space(agent: Agent, space: Space[Any], name: str) -> None:
    """Raise ValueError unless an agent draws exactly the actions that `space` holds.

    An agent whose `action_space` is None is not compared. Bounds of real numbers are not, as cages clip.

    name: of the environment, for messages.
    """
    if agent.action_space is not None:
        _compare(agent.action_space, space, "agent.action", type(agent).__name__, name)


def check_example_action(action: Tree, space: Space[Any], name: str) -> None:
    """Raise ValueError where an example of one action, a numpy tree, has another kind, shape or range.

    It is all that there is of an agent that does not say which space it draws from.
    """
    # By path, with the names that both have in the samples, as agents need not use the types of gymnasium.
    there = dict(buffer_leaves(buffer_map(np.asarray, action), "agent.action"))
    for where, one in _leaves(space):
        whole, got = _whole(one), there.get(where)
        if whole is None or got is None:  # cages compare fields and shapes
            continue
        if got.dtype.kind not in "biu":
            raise ValueError(
                f"{name}: {where}: expected whole numbers, as in the action space, got {got.dtype} from "
                "the agent"
            )
        if got.shape == whole.low.shape and ((got < whole.low) | (got > whole.high)).any():
            raise ValueError(
                f"{name}: {where}: expected an action of {one}, got {got} from the agent"
            )


class _Whole(NamedTuple):
    """The lowest and the highest of some whole numbers, of the shape of one action."""

    low: NDArray[Any]
    high: NDArray[Any]


def _whole(space: Space[Any]) -> _Whole | None:
    """Return the range of a space of whole numbers, None for others."""
    if isinstance(space, spaces.Discrete):
        return _Whole(np.asarray(space.start), np.asarray(space.start + space.n - 1))
    if isinstance(space, spaces.MultiDiscrete):
        return _Whole(space.start, space.start + space.nvec - 1)
    if isinstance(space, spaces.MultiBinary):
        return _Whole(np.zeros(space.shape), np.ones(space.shape))
    if isinstance(space, spaces.Box) and space.dtype.kind in "biu":
        return _Whole(space.low, space.high)
    return None


def _compare(drawn: Space[Any], taken: Space[Any], path: str, agent: str, name: str) -> None:
    # Part by part, so that the message names the one that does not fit.
    parts, of_agent = _parts(taken), _parts(drawn)
    if parts is not None and of_agent is not None and set(parts) == set(of_agent):
        for key, part in parts.items():
            _compare(of_agent[key], part, f"{path}.{key}", agent, name)
        return
    mine, theirs = _whole(drawn), _whole(taken)
    hint = ""
    if mine is not None and theirs is not None:
        fits = np.array_equal(mine.low, theirs.low) and np.array_equal(mine.high, theirs.high)
        # As many choices that begin elsewhere: the usual mistake, with an easy remedy.
        if not fits and np.array_equal(mine.high - mine.low, theirs.high - theirs.low):
            hint = f"; give its distribution start={theirs.low.tolist()}"
    else:
        # Bounds of a Box are left out: a normal distribution has none, and cages clip.
        reals = mine is None and theirs is None and type(drawn) is type(taken) is spaces.Box
        fits = drawn == taken or (reals and drawn.shape == taken.shape)
    if not fits:
        raise ValueError(f"{name}: {path}: expected {taken}, {agent} draws from {drawn}{hint}")


def _parts(space: Space[Any]) -> Mapping[str, Space[Any]] | None:
    """Return the spaces inside of one by their names in buffers, None if it has none."""
    return parts_of(space.spaces) if isinstance(space, (spaces.Dict, spaces.Tuple)) else None


def _leaves(space: Space[Any], where: str = "agent.action") -> list[tuple[str, Space[Any]]]:
    parts = _parts(space)
    if parts is None:
        return [(where, space)]
    return [leaf for key, part in parts.items() for leaf in _leaves(part, f"{where}.{key}")]
