"""Contracts of transforms: inherit one and define `make_transform`, and pytest collects the tests.

    class TestSignedRoots(StepTransformContract):
        def make_transform(self):
            return SignedRoots()

Samples are filled with random numbers. For a transform that reads fields of other transforms, override
`make_samples` to add these fields::

    class TestWhiten(BatchTransformContract):
        def make_transform(self):
            return Whiten(source="agent.advantage")

        def make_samples(self, valid):
            fields = {"agent.advantage": Field(np.float32(0))}
            return add_fields(super().make_samples(valid), fields, self.batch_spec)
"""

from __future__ import annotations

import copy

import numpy as np

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_asarray, buffer_leaves, buffer_map
from parllel.testing.resume_contract import assert_equal_states
from parllel.testing.transform_rules import SEEN, TransformRules, disturb
from parllel.testing.transform_samples import write_numbers
from parllel.transforms.transform import BatchTransform, StepTransform
from parllel.types import Tree

__all__ = ["BatchTransformContract", "StepTransformContract"]


class BatchTransformContract(TransformRules):
    """Tests of a transform of whole batches."""

    def run(self, transform: BatchTransform, samples: Samples) -> None:
        """Transform the batch."""
        transform.transform_batch(samples)


class StepTransformContract(TransformRules):
    """Tests of a transform of rows during sampling."""

    def run(self, transform: StepTransform, samples: Samples) -> None:
        """Transform all sampled cells and the row after them, then end the batch."""
        self.run_rows(transform, samples)
        transform.end_batch(samples)

    def run_rows(
        self, transform: StepTransform, samples: Samples, groups: tuple[slice, ...] = ()
    ) -> None:
        """Transform rows 0 to T, by groups of columns; or one by one, if not all are valid."""
        T, B = self.batch_spec.shape
        valid = np.ones((T, B), bool)
        if "valid" in samples.env._fields:
            valid = np.asarray(samples.env.valid)
        # Row T follows only where the last row did not end an episode; with resets inside, it always does.
        live = valid[-1] & ~np.asarray(samples.env.done)[-1] | valid.all()
        for t in range(T + 1):
            row = live if t == T else valid[t]
            singles = [slice(b, b + 1) for b in np.flatnonzero(row)]
            for columns in groups or ([slice(0, B)] if row.all() else singles):
                transform.transform_step(samples, t, columns)

    def test_environments_may_come_in_groups(self) -> None:
        transform, samples = self.made(1)
        other, grouped = self.made(1)
        for buffer in (samples, grouped):
            write_numbers(buffer, 2)
        self.run_rows(transform, samples)
        # Uneven, and the later columns first: groups come as their environments are ready.
        self.run_rows(other, grouped, (slice(1, 4), slice(0, 1)))
        self.assert_same(self.written(other, grouped), self.written(transform, samples))

    def test_it_writes_the_given_cells_alone(self) -> None:
        transform, samples = self.made(1)
        write_numbers(samples, 2)
        before = self.written(transform, samples)
        # While one group is transformed, workers write to the rows of the other.
        transform.transform_step(samples, 1, slice(1, 3))
        for path, numbers in self.written(transform, samples).items():
            numbers[1, 1:3] = before[path][1, 1:3]
            np.testing.assert_array_equal(numbers, before[path], err_msg=path)

    def test_a_row_does_not_depend_on_later_ones(self) -> None:
        results = []
        # What is in later rows is the batch before, or half written.
        for garbage in (50, 60):
            transform, samples = self.made(1)
            write_numbers(samples, 2)
            later = np.zeros(self.batch_spec.shape, bool)
            later[3:] = True
            disturb(samples, later, garbage)
            for t in range(3):
                transform.transform_step(samples, t, slice(0, self.batch_spec.B))
            rows = self.written(transform, samples)
            results.append({path: numbers[:3] for path, numbers in rows.items()})
        self.assert_same(*results)

    def test_statistics_stand_still_within_a_batch(self) -> None:
        transform, samples = self.made(1)
        before = copy.deepcopy(transform.state())
        write_numbers(samples, 2)
        self.run_rows(transform, samples)
        # Evaluations and truncated episodes use the statistics too, and must leave them alone.
        transform.transform_final(buffer_map(np.array, _row(samples.env.observation, 0)))
        assert_equal_states(transform.state(), before)

    def test_final_observations_become_what_steps_show(self) -> None:
        transform, samples = self.made(1)
        if not any(_is_seen(path) for path in transform.fields(samples)):
            return  # the agent sees nothing of it
        # The one that is inherited returns raw observations, which the agent was never trained on.
        said = type(transform).transform_final is not StepTransform.transform_final
        assert said, "transform_final is not implemented"
        write_numbers(samples, 2)
        self.run_rows(transform, samples)
        # N differs from call to call: as many episodes as happen to end.
        for t, columns in ((0, slice(0, 4)), (3, slice(1, 2))):
            raw = buffer_map(lambda leaf, b=columns: leaf[b], _row(samples.env.observation, t))
            # A copy, to see whether it is changed: it may be the environment's own memory.
            given = buffer_map(np.array, raw)
            final = transform.transform_final(given)
            shown = _row(samples.agent.observation, t)
            expected = buffer_map(lambda leaf, b=columns: leaf[b], shown)
            self.assert_same(dict(buffer_leaves(final)), dict(buffer_leaves(expected)))
            for (path, leaf), (_, before) in zip(
                buffer_leaves(given), buffer_leaves(raw), strict=True
            ):
                np.testing.assert_array_equal(leaf, before, err_msg=f"{path}: changed")


def _row(observation: Tree, t: int) -> Tree:
    return buffer_asarray(observation[t])


def _is_seen(path: str) -> bool:
    return f"{path}.".startswith(f"{SEEN}.")
