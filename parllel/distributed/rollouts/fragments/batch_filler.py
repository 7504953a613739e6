"""Filling a batch with fragments, and computing what only the trainer can.

agent.observation    as the workers' agents saw it, with the statistics of `env.version`
its row T            with current statistics, like final observations: current weights compute their values
statistics           then updated from the raw observations, each step once
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from parllel.agents.handler import Handler
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.distributed.rollouts.fragments.fragment_batch import FragmentBatch
from parllel.distributed.rollouts.fragments.sample_fragment import FragmentKey, SampleFragment
from parllel.transforms.field_checks import check_fields
from parllel.transforms.final_chain import FinalChain
from parllel.transforms.transform import StepTransform, Transform, end_batch, note_transform
from parllel.types import BatchSpec

_Number: TypeAlias = "tuple[float, int]"  # epoch and sequence
_BEFORE: _Number = (0, -1)
_AFTER: _Number = (float("inf"), 0)
# Limit for one environment. Only a random-order storage with that many of its fragments could exceed it.
_MAX_GAPS = 4096
# Each start of a worker adds its environments.
_MAX_ENVIRONMENTS = 2**16


class BatchFiller:
    """Copies fragments to a buffer, transforms its rows, and writes the values after fragments.

    Binds handler and transforms to the buffer.

    Args:
        batch_spec: T and B.
        handler: handler of the agent whose current weights compute the values.
        samples: [T, B], to be filled.
        step_transforms: step transforms, in order.
        transforms: all transforms, including batch transforms.

    Attributes:
        samples: the buffer, with all fields.

    Raises:
        ValueError: if parts and samples do not fit.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        handler: Handler,
        samples: Samples,
        step_transforms: Sequence[StepTransform],
        transforms: Sequence[Transform],
    ) -> None:
        self._batch = FragmentBatch(samples, batch_spec)
        self.samples = self._batch.samples
        self._T, self._all_envs = batch_spec.T, slice(0, batch_spec.B)
        self._handler = handler
        self._steps, self._transforms = list(step_transforms), list(transforms)
        check_fields(self.samples, transforms)
        self._chain = FinalChain(self.samples, step_transforms)
        handler.bind(self.samples)
        for transform in transforms:
            transform.bind(self.samples)
        final = getattr(self.samples.agent, "final_value", None)
        self._final_values = [leaf for _, leaf in buffer_leaves(final)]
        if handler.agent.recurrent and self._final_values:
            raise ValueError(
                "samples: expected no field agent.final_value for a recurrent agent, because its "
                "state at the end of a fragment is unknown; use a TransformingAlgorithm in which "
                "EvaluatePolicy and EstimateVtrace estimate values"
            )
        # The last fragment of each column, because some transforms continue from batch to batch.
        self._keys: list[FragmentKey | None] = [None] * batch_spec.B
        self._counted = SeenFragments()

    def fill(self, fragments: Sequence[SampleFragment]) -> None:
        """Fill the columns with B fragments, and update the statistics of step transforms.

        A fragment that continues the last fragment of a column is copied to this column. The others
        fill the remaining columns in order.

        Raises:
            ValueError: if fragments do not fit the samples.
        """
        fragments = self._placed(fragments)
        cuts = self._batch.put(fragments)
        # Before the first row is transformed, or values of another fragment would be continued.
        self._forget_others(fragments)
        self._handler.sample_mode()  # an update may have left the agent in another mode
        if self._steps:
            for t in range(self._T + 1):
                self._transform_row(t)
            self._batch.write_seen_observations(fragments)
        if not self._handler.agent.recurrent:
            self._handler.bootstrap_value(self._T, self._all_envs)
        # Only rows of cuts are written, so values of the previous batch must be cleared.
        for final_value in self._final_values:
            final_value[...] = 0
        if cuts:
            seen = self._chain.as_seen(self._batch.stacked(cuts))
            rows, columns = np.array([(cut.row, cut.column) for cut in cuts], np.intp).T
            self._handler.final_value(rows, columns, seen)
        self._batch.clear_rest()
        if self._steps:
            # Last, because all rows and values of the batch use the same statistics.
            self._update_statistics([fragment.key for fragment in fragments])

    def _transform_row(self, t: int) -> None:
        for transform in self._steps:
            try:
                transform.transform_step(self.samples, t, self._all_envs)
            except Exception as error:
                note_transform(error, transform, f"transform_step, row {t}")
                raise

    def _update_statistics(self, keys: Sequence[FragmentKey]) -> None:
        # A storage may return a fragment several times, but its steps count only once.
        # Registered first: if the update fails, steps are missing rather than counted twice.
        again = [column for column, key in enumerate(keys) if not self._counted.add(key)]
        with self._batch.without(again):
            end_batch(self._steps, self.samples)

    def _placed(self, fragments: Sequence[SampleFragment]) -> list[SampleFragment]:
        """Order the fragments by column."""
        # Fragments arrive in any order. Without this, values that continue from batch to batch, such as
        # discounted returns, would end with each fragment.
        columns = {(*key[:3], key[3] + 1): column for column, key in enumerate(self._keys) if key}
        found = [(columns.get(fragment.key), fragment) for fragment in fragments]
        placed = {column: fragment for column, fragment in found if column is not None}
        rest = iter([fragment for column, fragment in found if column is None])
        return [
            placed[column] if column in placed else next(rest) for column in range(len(fragments))
        ]

    def _forget_others(self, fragments: Sequence[SampleFragment]) -> None:
        """Tell transforms in which columns a fragment does not continue the one before."""
        others = [
            column
            for column, (last, fragment) in enumerate(zip(self._keys, fragments, strict=True))
            if last is None or (*last[:3], last[3] + 1) != fragment.key
        ]
        if others:
            for transform in self._transforms:
                transform.forget(np.array(others, np.intp))
        # Nothing continues in a column whose last rows are padding.
        self._keys = [
            fragment.key if fragment.n_steps == self._T else None for fragment in fragments
        ]

    def forget_columns(self) -> None:
        """Forget the last fragment of each column, so that later fragments do not continue it."""
        self._keys = [None] * len(self._keys)


class SeenFragments:
    """Distinguishes new fragments from those that a storage returns again.

    Unseen numbers are kept as gaps, by environment. There is one gap if fragments arrive in order, plus one
    for each time the environment broke off. Only the most recent environments are remembered.
    """

    def __init__(self) -> None:
        # Open intervals of unseen numbers, in order. The most recent environment is the last key.
        self._gaps: dict[tuple[str, int], list[tuple[_Number, _Number]]] = {}

    def add(self, key: FragmentKey) -> bool:
        """Register a fragment. Returns True if it is new."""
        producer, environment, epoch, sequence = key
        gaps = self._gaps.pop((producer, environment), None) or [(_BEFORE, _AFTER)]
        self._gaps[producer, environment] = gaps
        if len(self._gaps) > _MAX_ENVIRONMENTS:
            del self._gaps[next(iter(self._gaps))]
        number = epoch, sequence
        # Find the last gap that begins before the number.
        at = bisect_right(gaps, (number, (-1, -1))) - 1
        if at < 0 or not gaps[at][0] < number < gaps[at][1]:
            return False
        begin, end = gaps[at]
        parts = [(begin, number), (number, end)]
        gaps[at : at + 1] = [gap for gap in parts if not _is_empty(*gap)]
        # The oldest gaps go first: the storage has most likely dropped these fragments.
        # What a deleted gap covered then counts as seen.
        del gaps[: max(0, len(gaps) - _MAX_GAPS)]
        return True


def _is_empty(begin: _Number, end: _Number) -> bool:
    return begin[0] == end[0] and begin[1] + 1 == end[1]
