"""Fill a batch with fragments, and compute what the workers could not know.

agent.observation    as the workers' agents saw it, by the statistics of `env.version`
its row T            by the present statistics, as are final observations: they are valued by present weights
statistics           then go on by the raw observations, each step once
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
# Of one environment. As many fragments of it have to be in a storage that hands them out at random before
# one of them may be forgotten.
_MAX_GAPS = 4096
# Each start of a worker adds its own.
_MAX_ENVIRONMENTS = 2**16


class BatchFiller:
    """Copy fragments to a buffer, transform its rows, and write the values of what comes after fragments.

    Handler and transforms are bound to the buffer here.

    Args:
        batch_spec: T and B.
        handler: of the agent whose present weights the values are of.
        samples: [T, B], to be filled.
        step_transforms: in order.
        transforms: all, those of the finished batch included.

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
                "samples: expected no field agent.final_value for an agent with a memory, whose state at the "
                "end of a fragment is not known; let EvaluatePolicy and EstimateVtrace estimate values in a "
                "TransformingAlgorithm"
            )
        # By column, as some transforms go on from batch to batch.
        self._keys: list[FragmentKey | None] = [None] * batch_spec.B
        self._counted = SeenFragments()

    def fill(self, fragments: Sequence[SampleFragment]) -> None:
        """Fill the columns with B fragments, and let the step transforms update their statistics.

        A fragment that continues the last one of a column goes there; the others fill the rest in order.

        Raises:
            ValueError: if fragments do not fit the samples.
        """
        fragments = self._placed(fragments)
        cuts = self._batch.put(fragments)
        self._forget_others(fragments)
        self._handler.sample_mode()  # an update may have left the agent in another
        if self._steps:
            for t in range(self._T + 1):
                self._transform_row(t)
            self._batch.write_seen_observations(fragments)
        if not self._handler.agent.recurrent:
            self._handler.bootstrap_value(self._T, self._all_envs)
        # Only rows of cuts are written, and the batch before has left its own.
        for final_value in self._final_values:
            final_value[...] = 0
        if cuts:
            seen = self._chain.as_seen(self._batch.stacked(cuts))
            rows, columns = np.array([(cut.row, cut.column) for cut in cuts], np.intp).T
            self._handler.final_value(rows, columns, seen)
        self._batch.clear_rest()
        if self._steps:
            self._update_statistics([fragment.key for fragment in fragments])

    def _transform_row(self, t: int) -> None:
        for transform in self._steps:
            try:
                transform.transform_step(self.samples, t, self._all_envs)
            except Exception as error:
                note_transform(error, transform, f"transform_step, row {t}")
                raise

    def _update_statistics(self, keys: Sequence[FragmentKey]) -> None:
        # A storage may hand out a fragment several times to be learned from, but it was played once.
        again = [column for column, key in enumerate(keys) if not self._counted.add(key)]
        with self._batch.without(again):
            end_batch(self._steps, self.samples)

    def _placed(self, fragments: Sequence[SampleFragment]) -> list[SampleFragment]:
        """Return the fragments by column."""
        # What goes on from batch to batch, such as discounted returns, would end with each fragment else:
        # they come in whatever order the environments were ready.
        columns = {(*key[:3], key[3] + 1): column for column, key in enumerate(self._keys) if key}
        found = [(columns.get(one.key), one) for one in fragments]
        placed = {column: one for column, one in found if column is not None}
        rest = iter([one for column, one in found if column is None])
        return [
            placed[column] if column in placed else next(rest) for column in range(len(fragments))
        ]

    def _forget_others(self, fragments: Sequence[SampleFragment]) -> None:
        """Let transforms know in which columns a fragment does not continue the one before it."""
        others = [
            column
            for column, (last, fragment) in enumerate(zip(self._keys, fragments, strict=True))
            if last is None or (*last[:3], last[3] + 1) != fragment.key
        ]
        if others:
            for transform in self._transforms:
                transform.forget(np.array(others, np.intp))
        # Nothing continues in a column whose last rows are padding.
        self._keys = [one.key if one.n_steps == self._T else None for one in fragments]

    def forget_columns(self) -> None:
        """Forget which fragments the columns had: those to come do not continue them."""
        self._keys = [None] * len(self._keys)


class SeenFragments:
    """Tell fragments that come for the first time from those that a storage hands out again.

    What has not been seen is kept as gaps between numbers of fragments, by environment. Where fragments come
    in order there is one, and another for each time that an environment broke off. Only the environments of
    which fragments came last are remembered.
    """

    def __init__(self) -> None:
        # Open intervals of numbers that have not been seen, in order; the environment of the last fragment is
        # the last.
        self._gaps: dict[tuple[str, int], list[tuple[_Number, _Number]]] = {}

    def add(self, key: FragmentKey) -> bool:
        """Return whether the fragment of this key is new, which it is not from now on."""
        producer, environment, epoch, sequence = key
        gaps = self._gaps.pop((producer, environment), None) or [(_BEFORE, _AFTER)]
        self._gaps[producer, environment] = gaps
        if len(self._gaps) > _MAX_ENVIRONMENTS:
            del self._gaps[next(iter(self._gaps))]
        number = epoch, sequence
        # The last gap that begins before the number.
        at = bisect_right(gaps, (number, (-1, -1))) - 1
        if at < 0 or not gaps[at][0] < number < gaps[at][1]:
            return False
        begin, end = gaps[at]
        parts = [(begin, number), (number, end)]
        gaps[at : at + 1] = [gap for gap in parts if not _is_empty(*gap)]
        # The oldest first: they were dropped by the storage, most likely.
        del gaps[: max(0, len(gaps) - _MAX_GAPS)]
        return True


def _is_empty(begin: _Number, end: _Number) -> bool:
    return begin[0] == end[0] and begin[1] + 1 == end[1]
