"""A buffer whose columns are at different rows, each at its own.

    agent: gather    <-- observation[t, b]          of the columns b that act, each at its own row t
    agent: write     --> action[t, b], agent_info[t, b]
    cage of b        --> reward[t, b], flags, info; observation[t + 1, b]
    record           <-- all of row t, and observation[t + 1, b]

A column belongs to its cage from the start of a row to its end, and to this side otherwise. After the last
row `wrap` copies the observation to row 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parllel.arrays import LazyFramesArray
from parllel.buffers import (
    Samples,
    buffer_leaves,
    buffer_map,
    dotted,
    leaf_paths,
    named_map,
    part_at,
)
from parllel.rollouts.batch_rows import same_memory
from parllel.rollouts.step_record import StepRecord
from parllel.types import Tree

_ENV = ("reward", "terminated", "truncated", "env_info")


class SingleRows:
    """Views of samples, made once.

    Args:
        samples: [T, B], with a padding row of observations; T can be 1.

    Attributes:
        T, B: of the samples.

    Raises:
        ValueError: for what only samplers can fill: lazy frames, observations that transforms make.
    """

    def __init__(self, samples: Samples) -> None:
        env, agent = samples.env, samples.agent
        for path, leaf in buffer_leaves(env.observation, "env.observation"):
            # A copy would be made of it, which no cage writes to.
            if isinstance(leaf, LazyFramesArray):
                raise ValueError(
                    f"{path}: expected whole stacks of frames for a ReadySchedule, got frames that are "
                    "stored once; allocate_samples(frames=0) makes stacks"
                )
        seen = getattr(agent, "observation", None)
        if seen is not None and not same_memory(seen, env.observation):
            raise ValueError(
                "agent.observation: expected env.observation itself for a ReadySchedule, which has no "
                "transforms, got another field; allocate samples without transforms, or use RowsSchedule"
            )
        self.samples = samples
        self._done: NDArray[np.bool_] = np.asarray(env.done)
        self.T, self.B = self._done.shape
        self._observation = named_map(
            lambda leaf: np.asarray(leaf[0 : self.T + 1]), env.observation
        )
        self._env = {name: named_map(np.asarray, getattr(env, name, None)) for name in _ENV}
        self._action = named_map(np.asarray, agent.action)
        self._agent_info = named_map(np.asarray, getattr(agent, "agent_info", None))
        self._state_like = named_map(np.asarray, getattr(agent, "initial_rnn_state", None))

    def gather(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Tree:
        """Return copies [N, ...] of the observations at places."""
        return named_map(lambda leaf: leaf[rows, columns], self._observation)

    def write(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], action: Tree, agent_info: Tree
    ) -> None:
        """Write what the agent answered for as many places, [N or more, ...]; what is more is dropped.

        Raises:
            ValueError: if a field has no part in it, or one of another shape.
        """
        n = len(rows)
        for name, field, value in (
            ("agent.action", self._action, action),
            ("agent.agent_info", self._agent_info, agent_info),
        ):
            for path, leaf in leaf_paths(field):
                try:
                    part = np.asarray(part_at(value, path))[:n]
                except KeyError as error:
                    raise ValueError(
                        f"{dotted(path, name)}: the samples have this field but the agent returned {value!r}"
                    ) from error
                if part.shape != (n, *leaf.shape[2:]):
                    raise ValueError(
                        f"{dotted(path, name)}: expected shape {(n, *leaf.shape[2:])}, the agent returned "
                        f"{part.shape}"
                    )
                leaf[rows, columns] = part

    def states(self, state: Tree) -> Tree:
        """Return recurrent states of the agent, numpy [N, ...], in the types of the samples."""
        if self._state_like is None:
            return state
        return buffer_map(lambda like, leaf: leaf.astype(like.dtype), self._state_like, state)

    def record(
        self, t: int, column: int, version: int, *, final_observation: Tree, rnn_state: Tree
    ) -> StepRecord:
        """Return the step that was taken at a place, as views."""

        def cell(tree: Tree, row: int = t) -> Tree:
            return named_map(lambda leaf: leaf[row, column], tree)

        env = {name: cell(tree) for name, tree in self._env.items()}
        return StepRecord(
            column,
            cell(self._observation),
            cell(self._action),
            cell(self._agent_info),
            env["reward"],
            env["terminated"],
            env["truncated"],
            cell(self._observation, t + 1),
            version,
            final_observation=final_observation,
            env_info=env["env_info"],
            rnn_state=rnn_state,
        )

    def ended(self, t: int, column: int) -> bool:
        """Return whether an episode ended with the step at a place; for several agents, of all of them."""
        return bool(self._done[t, column])

    def wrap(self, columns: slice) -> None:
        """Copy the observation after the last row to row 0."""
        for _, leaf in leaf_paths(self._observation):
            leaf[0, columns] = leaf[self.T, columns]
