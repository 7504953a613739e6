"""Tests shared by all kinds of transforms."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.buffers.allocation import insert_field
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.runs.state_file import check_state
from parllel.testing.resume_contract import assert_equal_states
from parllel.testing.transform_samples import allocate_numbers, numbers_of, write_numbers
from parllel.transforms.field_allocation import add_transform_fields
from parllel.transforms.transform import Transform
from parllel.types import BatchSpec, Tree

SEEN = "agent.observation"
WRITTEN_BY_HANDLER = ("agent.final_value", "agent.final_observation")


class TransformRules:
    """Tests of both kinds of transform.

    Attributes:
        batch_spec: T and B of the samples.
        observation: example of one cell of `env.observation`, suitable for the transform.
        in_place: paths that it writes without declaring them, as another transform declares them.
        also_reads: paths that it reads if they exist, besides its `reads`.
        tolerance: relative and absolute tolerance of comparisons.
    """

    batch_spec = BatchSpec(5, 4)
    observation: Tree = np.zeros(3, np.float32)
    in_place: tuple[str, ...] = ()
    also_reads: tuple[str, ...] = ("env.valid",)
    tolerance = 1e-5

    def make_transform(self) -> Any:
        """Return a new transform, identical for each call."""
        raise NotImplementedError(
            f"{type(self).__name__} must define make_transform() to create a transform"
        )

    def make_samples(self, valid: bool) -> Samples:
        """Return samples without the fields of the transform; `valid`: with `env.valid`."""
        return allocate_numbers(self.batch_spec, observation=self.observation, valid=valid)

    def run(self, transform: Any, samples: Samples) -> None:
        """Apply the transform to a batch."""
        raise NotImplementedError

    def buffer(self, transform: Transform, *, valid: bool = False) -> Samples:
        """Return samples with the fields of the transform, which is bound to them."""
        samples = self.make_samples(valid)
        samples = add_transform_fields(samples, [transform], self.batch_spec)
        if "observation" not in samples.agent._fields:
            samples = insert_field(samples, SEEN, samples.env.observation)
        transform.bind(samples)
        return samples

    def made(self, seed: int, *, valid: bool = False) -> tuple[Any, Samples]:
        """Return a transform and samples after one batch of numbers."""
        transform = self.make_transform()
        samples = self.buffer(transform, valid=valid)
        write_numbers(samples, seed)
        self.run(transform, samples)
        return transform, samples

    def written(self, transform: Transform, samples: Samples) -> dict[str, NDArray[Any]]:
        """Return copies of the fields that the transform writes, by path."""
        paths = [*transform.fields(samples), *self.in_place]
        numbers = numbers_of(samples)
        return {
            path: numbers[path]
            for at in paths
            for path, _ in buffer_leaves(field_at(samples, at), at)
            # Declared by transforms, but written while sampling, by the handler.
            if not path.startswith(WRITTEN_BY_HANDLER)
        }

    def assert_same(self, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        """Compare arrays by path."""
        assert list(found) == list(expected)
        for path, numbers in expected.items():
            assert found[path].dtype == numbers.dtype, path
            np.testing.assert_allclose(
                found[path], numbers, self.tolerance, self.tolerance, err_msg=path
            )

    # ------------------------------------------------------------------ fields

    def test_it_writes_what_it_declares_and_nothing_else(self) -> None:
        transform = self.make_transform()
        samples = self.buffer(transform)
        # Twice: a transform may find nothing to write in one batch, or write only in its first.
        for seed in range(2):
            write_numbers(samples, seed)
            before = numbers_of(samples)
            self.run(transform, samples)
            own = self.written(transform, samples)
            for path, numbers in numbers_of(samples).items():
                if path not in own:
                    np.testing.assert_array_equal(numbers, before[path], err_msg=path)
            # What stays as it was either is not written, or should not have been declared.
            changed = [path for path in own if not np.array_equal(own[path], before[path])]
            assert changed == list(own)

    def test_it_asks_for_the_same_fields_when_they_are_there(self) -> None:
        transform = self.make_transform()
        before = _leaf_shapes(transform.fields(self.make_samples(False)))
        # Samplers ask again with all fields allocated, and refuse a buffer that lacks what is asked for.
        assert _leaf_shapes(transform.fields(self.buffer(transform))) == before

    def test_it_reads_no_more_than_it_declares(self) -> None:
        transform, samples = self.made(1)
        # None declares nothing, so there is nothing to hold it to.
        if transform.reads is None:
            return
        other = self.make_transform()
        disturbed = self.buffer(other)
        write_numbers(disturbed, 1)
        paths = [*transform.reads, *self.also_reads, *self.in_place, *WRITTEN_BY_HANDLER]
        # A field that is read and not declared escapes the check of the order: its values could be old.
        write_numbers(disturbed, 99, but=_keys_at(disturbed, paths))
        self.run(other, disturbed)
        self.assert_same(self.written(other, disturbed), self.written(transform, samples))

    def test_its_fields_begin_anew_with_each_batch(self) -> None:
        transform, samples = self.made(1)
        other = self.make_transform()
        disturbed = self.buffer(other)
        write_numbers(disturbed, 1)
        own = [path for path in other.fields(disturbed) if path not in WRITTEN_BY_HANDLER]
        keys = _keys_at(disturbed, own)
        # Buffers are used again: numbers of the batch before must not be added to.
        write_numbers(disturbed, 99, but=_all_keys(disturbed) - keys)
        self.run(other, disturbed)
        self.assert_same(self.written(other, disturbed), self.written(transform, samples))

    # ------------------------------------------------------------------ state

    def test_a_transform_that_takes_its_state_goes_on_as_it_would(self) -> None:
        transform, samples = self.made(1)
        state = copy.deepcopy(transform.state())
        # What a checkpoint cannot hold is an error after the first batches of a run, so it must be one here.
        check_state(state)
        other = self.make_transform()
        elsewhere = self.buffer(other)
        # A copy, to see that it keeps no reference to the state that it was given.
        other.load_state(copy.deepcopy(state))
        assert_equal_states(other.state(), state)
        for seed in (2, 3):
            for one, buffer in ((transform, samples), (other, elsewhere)):
                write_numbers(buffer, seed)
                self.run(one, buffer)
            self.assert_same(self.written(other, elsewhere), self.written(transform, samples))
        assert_equal_states(other.state(), transform.state())

    def test_it_goes_on_in_another_buffer(self) -> None:
        transform, samples = self.made(1)
        other, _ = self.made(1)
        # As samplers do that switch buffers: views of the old one must not be used any more.
        moved = self.buffer(other)
        for one, buffer in ((transform, samples), (other, moved)):
            write_numbers(buffer, 2)
            self.run(one, buffer)
        self.assert_same(self.written(other, moved), self.written(transform, samples))

    def test_what_was_not_sampled_does_not_count(self) -> None:
        states, results = [], []
        for garbage in (50, 60):
            transform = self.make_transform()
            samples = self.buffer(transform, valid=True)
            for seed in (1, 2):
                write_numbers(samples, seed)
                valid = np.asarray(samples.env.valid)
                assert not valid.all()
                # Two kinds of garbage must give one result. NaN would find out only what adds up.
                disturb(samples, ~valid, garbage + seed)
                self.run(transform, samples)
            states.append(transform.state())
            numbers = self.written(transform, samples)
            T = self.batch_spec.T
            results.append({path: rows[:T][valid] for path, rows in numbers.items()})
        assert_equal_states(*states)
        self.assert_same(*results)


def disturb(samples: Samples, where: NDArray[np.bool_], seed: int) -> None:
    """Change some cells of all fields that environments and agent write, except ends of episodes."""
    rng = np.random.default_rng(seed)
    # These say which cells count. With other ends, results may rightly differ.
    ends = _keys_at(
        samples, [f"env.{name}" for name in ("terminated", "truncated", "done", "valid")]
    )
    for _, leaf in buffer_leaves(samples):
        body = np.asarray(leaf)
        if leaf.block.key not in ends and body.dtype.kind != "b":
            body[where] = rng.integers(0, 99, body[where].shape)


def _leaf_shapes(fields: Mapping[str, Any]) -> dict[str, Any]:
    leaves = [item for at, field in fields.items() for item in buffer_leaves(field, at)]
    return {path: (np.shape(leaf.example), leaf.stored_dtype) for path, leaf in leaves}


def _all_keys(samples: Samples) -> set[int]:
    return {leaf.block.key for _, leaf in buffer_leaves(samples) if isinstance(leaf, Array)}


def _keys_at(samples: Samples, paths: list[str]) -> set[int]:
    return {
        leaf.block.key
        for path, leaf in buffer_leaves(samples)
        if any(f"{path}.".startswith(f"{at}.") for at in paths)
    }
