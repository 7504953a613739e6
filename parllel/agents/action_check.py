"""Checks that an agent's actions fit the environments' action space, before sampling starts."""

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
    """Raise ValueError unless an agent's action space equals that of the environment.

    An agent with `action_space` None is not checked. Neither are bounds of real numbers, because cages clip.

    name: name of the environment, for error messages.
    """
    if agent.action_space is not None:
        _compare(agent.action_space, space, "agent.action", type(agent).__name__, name)


def check_example_action(action: Tree, space: Space[Any], name: str) -> None:
    """Raise ValueError if an example action, a numpy tree, has the wrong kind, shape or range.

    Used for agents that do not declare their action space.
    """
    # By path in the samples: agents need not use gymnasium's node types.
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
    """Bounds of integer actions, in the shape of one action."""

    low: NDArray[Any]
    high: NDArray[Any]


def _whole(space: Space[Any]) -> _Whole | None:
    """Return the bounds of a space of integers, or None for other spaces."""
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
    # Part by part, so that the message names the part that does not fit.
    parts, of_agent = _parts(taken), _parts(drawn)
    if parts is not None and of_agent is not None and set(parts) == set(of_agent):
        for key, part in parts.items():
            _compare(of_agent[key], part, f"{path}.{key}", agent, name)
        return
    mine, theirs = _whole(drawn), _whole(taken)
    hint = ""
    if mine is not None and theirs is not None:
        fits = np.array_equal(mine.low, theirs.low) and np.array_equal(mine.high, theirs.high)
        # The same number of choices with another start is a common mistake with an easy fix.
        if not fits and np.array_equal(mine.high - mine.low, theirs.high - theirs.low):
            hint = f"; give its distribution start={theirs.low.tolist()}"
    else:
        # Bounds of a Box are not compared: a normal distribution has none, and cages clip.
        reals = mine is None and theirs is None and type(drawn) is type(taken) is spaces.Box
        fits = drawn == taken or (reals and drawn.shape == taken.shape)
    if not fits:
        raise ValueError(f"{name}: {path}: expected {taken}, {agent} draws from {drawn}{hint}")


def _parts(space: Space[Any]) -> Mapping[str, Space[Any]] | None:
    """Return the subspaces by their names in buffers, or None if there are none."""
    return parts_of(space.spaces) if isinstance(space, (spaces.Dict, spaces.Tuple)) else None


def _leaves(space: Space[Any], where: str = "agent.action") -> list[tuple[str, Space[Any]]]:
    parts = _parts(space)
    if parts is None:
        return [(where, space)]
    return [leaf for key, part in parts.items() for leaf in _leaves(part, f"{where}.{key}")]
