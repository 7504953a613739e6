"""A sample buffer whose columns advance independently, each at its own row.

    transform        --> agent.observation[t, b]    of the columns b that act, each at its own row t
    agent: gather    <-- agent.observation[t, b]
    agent: write     --> action[t, b], agent_info[t, b]
    cage of b        --> reward[t, b], flags, info; observation[t + 1, b]
    record           <-- all of row t, and observation[t + 1, b]

The cage owns a column while it steps, and this process owns it otherwise. After the last row, `wrap` copies
the observation to row 0. Without transforms, `agent.observation` is `env.observation`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.paths import dotted, leaf_paths, part_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves, buffer_map, named_map
from parllel.distributed.rollouts.fragments.batch_rows import stored_fields
from parllel.distributed.rollouts.step_record import StepRecord
from parllel.transforms.field_checks import check_fields
from parllel.transforms.transform import StepTransform, note_transform
from parllel.types import Tree


class SingleRows:
    """Views of samples, created once.

    Args:
        samples: [T, B], with a padding row of observations; T can be 1.
        step_transforms: transforms applied in order to a cell before the agent sees it. They are
            bound here.

    Attributes:
        T, B: size of the samples.
        fields: the fields that fragments store, see `stored_fields`.
        done, truncated: [T, B] bool; with several agents, `done` is True when all are.

    Raises:
        ValueError: for lazy frames, which only samplers can fill, or if samples and transforms do not fit.
    """

    def __init__(self, samples: Samples, step_transforms: Sequence[StepTransform] = ()) -> None:
        env, agent = samples.env, samples.agent
        for path, leaf in buffer_leaves(env.observation, "env.observation"):
            # `np.asarray` would make a copy, which no cage writes to.
            if isinstance(leaf, LazyFramesArray):
                raise ValueError(
                    f"{path}: expected whole stacks of frames for an AsynchronousSchedule, got frames that "
                    "are stored once; use allocate_samples(frames=0)"
                )
        check_fields(samples, step_transforms)
        fields = stored_fields(samples)
        if fields["agent.observation"] is not None and not step_transforms:
            raise ValueError(
                "agent.observation: expected env.observation itself, because there are no step "
                "transforms, got another field; allocate the samples without transforms, or pass "
                "the same ones here"
            )
        self._transforms = list(step_transforms)
        for transform in self._transforms:
            transform.bind(samples)
        # Plain views from here on, also of memory that the processes of cages write to. They stay
        # valid because no schedule rotates or switches these samples.
        self.samples = samples
        self.fields = fields
        self.done: NDArray[np.bool_] = np.asarray(env.done)
        self.truncated: NDArray[np.bool_] = np.asarray(env.truncated)
        self.T, self.B = self.done.shape
        seen = fields["agent.observation"]
        self._observation = fields["env.observation"]
        self._seen = self._observation if seen is None else seen
        # Used for its dtypes: groups keep the states, as their fragments begin at different times.
        self._state_like = named_map(np.asarray, getattr(agent, "initial_rnn_state", None))

    def gather(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Tree:
        """Return copies [N, ...] of the agent's observations at the given cells."""
        # Fancy indexing copies, so the agent may keep the result while the cages write on.
        return named_map(lambda leaf: leaf[rows, columns], self._seen)

    def transform(self, t: int, columns: slice) -> None:
        """Compute the agent's observations of one row."""
        # Only in these columns, because cages may be writing to all others.
        for transform in self._transforms:
            try:
                transform.transform_step(self.samples, t, columns)
            except Exception as error:
                note_transform(error, transform, f"transform_step, row {t}")
                raise

    def forget(self, columns: slice) -> None:
        """Tell transforms that new episodes begin in some columns, after a gap."""
        for transform in self._transforms:
            transform.forget(np.arange(columns.start, columns.stop))

    def write(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], action: Tree, agent_info: Tree
    ) -> None:
        """Write the agent's outputs [N or more, ...] to N cells. Rows beyond N are padding, and dropped.

        Raises:
            ValueError: if a field is missing in the outputs, or has another shape.
        """
        # All outputs are written before `start_row` hands the cells to their cage. The signal to
        # its process also orders the memory.
        n = len(rows)
        for name, value in (
            ("agent.action", action),
            ("agent.agent_info", agent_info),
        ):
            for path, leaf in leaf_paths(self.fields[name]):
                try:
                    part = np.asarray(part_at(value, path))[:n]
                except KeyError as error:
                    raise ValueError(
                        f"{dotted(path, name)}: the samples have this field, but the agent "
                        f"returned {value!r}"
                    ) from error
                if part.shape != (n, *leaf.shape[2:]):
                    raise ValueError(
                        f"{dotted(path, name)}: expected shape {(n, *leaf.shape[2:])}, the agent returned "
                        f"{part.shape}"
                    )
                # Checked above, because numpy would broadcast one output over all environments.
                leaf[rows, columns] = part

    def states(self, state: Tree) -> Tree:
        """Convert recurrent states of the agent, numpy [N, ...], to the dtypes of the samples."""
        if self._state_like is None:
            return state
        # `astype` copies: the state before the step is needed when the step is answered.
        return buffer_map(lambda like, leaf: leaf.astype(like.dtype), self._state_like, state)

    def stored(self, observation: Tree) -> Tree:
        """Convert one observation, as returned by an environment, to the dtypes of the samples."""
        # Not always a copy: the cutter makes one before the environment's next step.
        return buffer_map(
            lambda row, leaf: np.asarray(leaf).astype(row.dtype, copy=False),
            self._observation,
            observation,
        )

    def record(
        self, t: int, column: int, version: int, *, final_observation: Tree, rnn_state: Tree
    ) -> StepRecord:
        """Return the step recorded in a cell, as views."""

        def cell(name: str, row: int = t) -> Tree:
            return named_map(lambda leaf: leaf[row, column], self.fields[name])

        # Views, because the columns belong to this thread only until the cage's next row starts.
        return StepRecord(
            column,
            cell("env.observation"),
            cell("agent.action"),
            cell("agent.agent_info"),
            cell("env.reward"),
            cell("env.terminated"),
            cell("env.truncated"),
            cell("env.observation", t + 1),
            version,
            final_observation=final_observation,
            env_info=cell("env.env_info"),
            agent_observation=cell("agent.observation"),
            rnn_state=rnn_state,
        )

    def write_observation(self, t: int, column: int, observation: Tree) -> None:
        """Write an observation, as returned by `stored`, to a cell that no cage writes to any more."""
        buffer_map(
            lambda leaf, part: leaf.__setitem__((t, column), part), self._observation, observation
        )

    def wrap(self, columns: slice) -> None:
        """Copy the observation after the last row to row 0."""
        # The same observation is transformed in row T and again in row 0, as in samplers, so that stateful
        # transforms end up in the same state.
        self.transform(self.T, columns)
        for _, leaf in leaf_paths(self._observation):
            # The cage is idle between its answer and its next row, so nobody else writes here.
            leaf[0, columns] = leaf[self.T, columns]
