"""A ring of a few rows of memory through which a vector environment steps a cage.

    start(actions)    action row t    --> cage                  t = 0, 1, 0, 1, ...
    finish()          row t + 1       <-- observations
                      row t           <-- reward and flags
    reset(...)        latest row      <-- observations of the environments that were reset

A step writes another row than the step before it, so observations of the latest step stay valid while the
next one is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.buffers.allocation import Field, allocate
from parllel.buffers.paths import parts_of
from parllel.buffers.samples import AgentSamples, EnvSamples, Samples
from parllel.buffers.tree import buffer_close, buffer_map
from parllel.cages.cage_interface import CageInterface
from parllel.cages.spaces import example_of
from parllel.cages.workers.remote_cage import RemoteCage
from parllel.types import BatchSpec, Tree

N_ROWS = 2


class StepRows:
    """Steps and resets all environments of a cage, and offers the results as numpy views.

    Args:
        cage: a cage of one group, made with `infos=True`.

    Attributes:
        cage: the argument.
        observation: views of the latest observations, [n, ...], nested like the space.
        reward: [n] float64.  terminated, truncated: [n] bool.  Views of the latest step.

    Raises:
        TypeError: for spaces whose elements have no fixed size.
    """

    def __init__(self, cage: CageInterface) -> None:
        self.cage = cage
        n, of_one = cage.n, cage.spaces
        # Everything in the dtypes of the spaces: other libraries expect float64 where a space has it.
        flags = dict.fromkeys(("terminated", "truncated", "done"), np.bool_(False))
        self._samples: Samples = allocate(
            Samples(
                agent=AgentSamples(
                    action=buffer_map(_exact, example_of(of_one.action)), agent_info=None
                ),
                env=EnvSamples(
                    observation=buffer_map(_padded, example_of(of_one.observation)),
                    reward=Field(0.0, dtype=np.float64),
                    **flags,
                    env_info=None,
                ),
            ),
            BatchSpec(N_ROWS, n),
            storage="managed" if isinstance(cage, RemoteCage) else "local",
        )
        try:
            cage.set_samples_buffer(self._samples, slice(0, n))
        except BaseException:
            buffer_close(self._samples)
            raise
        env = self._samples.env
        rows = range(N_ROWS + 1)
        self._observations = [_views(of_one.observation, env.observation, t) for t in rows]
        action = self._samples.agent.action
        self._writers = [_writer(of_one.action, action, t, n) for t in range(N_ROWS)]
        self._results = [
            tuple(np.asarray(field[t]) for field in (env.reward, env.terminated, env.truncated))
            for t in range(N_ROWS)
        ]
        self._t = 0
        self.observation: Tree = self._observations[0]
        self.reward: NDArray[np.float64]
        self.terminated: NDArray[np.bool_]
        self.truncated: NDArray[np.bool_]
        self.reward, self.terminated, self.truncated = self._results[0]
        self._row = 0

    def start(self, actions: Any, *, or_reset: bool = False) -> None:
        """Start a step with a batch of actions; `finish` completes it.

        or_reset: reset the environments that wait, in place of stepping them.

        Raises:
            ValueError: if the shape of the actions does not fit.
        """
        t = 1 - self._t
        self._writers[t](actions)
        if or_reset:
            self.cage.start_row_or_reset(t)
        else:
            self.cage.start_row(t)
        self._t = t  # if the start raised, nothing of this row is read

    def finish(self) -> None:
        """Wait for the step that was started."""
        self.cage.finish_row()
        t = self._t
        self._row = t + 1
        self.observation = self._observations[t + 1]
        self.reward, self.terminated, self.truncated = self._results[t]

    def start_reset(
        self,
        *,
        which: NDArray[np.bool_] | None = None,
        seeds: Sequence[Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start a reset of all environments, or those of a mask; `finish_reset` completes it."""
        # Into the latest row, where the observations of the others are.
        self.cage.start_reset(self._row, which=which, seeds=seeds, options=options)

    def finish_reset(self) -> None:
        """Wait for the reset that was started."""
        self.cage.finish_row()

    def close(self) -> None:
        """Close the cage, then the memory. Idempotent."""
        try:
            self.cage.close()
        finally:
            buffer_close(self._samples)


def _exact(leaf: Any) -> Field:
    return Field(leaf, dtype=np.asarray(leaf).dtype)


def _padded(leaf: Any) -> Field:
    return Field(leaf, padding=1, dtype=np.asarray(leaf).dtype)


def _views(space: gym.Space[Any], node: Any, t: int) -> Tree:
    """Return numpy views of one row, nested like the space."""
    inner = parts_of(getattr(space, "spaces", None))
    if inner is None:
        return np.asarray(node[t])
    views = {name: _views(part, getattr(node, name), t) for name, part in inner.items()}
    return tuple(views.values()) if isinstance(space, spaces.Tuple) else views


def _writer(space: gym.Space[Any], node: Any, t: int, n: int) -> Callable[[Any], None]:
    """Return a function that writes a batch of actions to row `t`."""
    inner = parts_of(getattr(space, "spaces", None))
    if inner is None:
        return _leaf_writer(np.asarray(node[t]))
    writers = {name: _writer(part, getattr(node, name), t, n) for name, part in inner.items()}
    if isinstance(space, spaces.Tuple):

        def write_tuple(actions: Sequence[Any]) -> None:
            for write, part in zip(writers.values(), actions, strict=True):
                write(part)

        return write_tuple

    def write_dict(actions: Mapping[str, Any]) -> None:
        for name, write in writers.items():
            write(actions[name])

    return write_dict


def _leaf_writer(row: NDArray[Any]) -> Callable[[Any], None]:
    shape = row.shape

    def write(actions: Any) -> None:
        # numpy would broadcast a single action to all environments.
        if np.shape(actions) != shape:
            raise ValueError(
                f"actions: expected shape {shape}, one per environment, got {np.shape(actions)}"
            )
        row[...] = actions

    return write


def copy_tree(tree: Tree) -> Tree:
    """Copy the arrays of a tree of observations."""
    if isinstance(tree, np.ndarray):
        return tree.copy()
    if isinstance(tree, dict):
        return {name: copy_tree(part) for name, part in tree.items()}
    return tuple(map(copy_tree, tree))
