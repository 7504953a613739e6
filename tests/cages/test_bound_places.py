"""A worker that is bound to other places than its own is found out when the buffer is set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cage_makers import synchronized

from parllel.arrays import Array
from parllel.arrays.batch_views import BatchViews
from parllel.buffers import allocate
from parllel.buffers.tree import buffer_rotate
from parllel.cages import SynchronizedProcessCage
from parllel.cages.stepping.leaf_rows import LeafRows
from parllel.cages.workers.environment_share import EnvironmentShare
from parllel.errors import RegistrationError, WrongStateError
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run_groups
from parllel.testing.cages.row_reference import make_samples
from parllel.testing.transform_samples import allocate_numbers
from parllel.types import BatchSpec, Tree

T, N, B = 4, 4, 8


def make(**options: Any) -> SynchronizedProcessCage:
    return synchronized([CountingEnv] * N, index=4, **options)


def refused(match: str, *, batches: int = 1, **options: Any) -> None:
    """Expect the buffer to be refused, and rows as well then."""
    samples: Any = make_samples(CountingEnv(), T, B, storage="managed")
    if batches > 1:
        samples = allocate(samples, BatchSpec(T, B), storage="managed", batches=batches)
    with make(**options) as cage:
        with pytest.raises(RegistrationError, match=match):
            cage.set_samples_buffer(samples, slice(2, 2 + N))
        with pytest.raises(WrongStateError, match="no samples buffer was set"):
            cage.start_reset(0)


@pytest.mark.parametrize(
    "options",
    [{}, {"n_groups": 2}, {"n_workers": 1, "participate": True, "n_main": 2}],
    ids=["workers", "groups", "main too"],
)
def test_a_share_that_is_one_column_off(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """The worker takes the column after each of its own, and so it says."""
    bind = EnvironmentShare.bind

    def shifted(self: EnvironmentShare, samples: Any, action: Tree, fields: Any, lo: int) -> Any:
        return bind(self, samples, action, fields, lo + 1)

    monkeypatch.setattr(EnvironmentShare, "bind", shifted)
    refused(
        r"worker 0 .*is bound to the wrong place in .*columns 2 to",
        **options,
    )


LEAVES = [
    "env.observation",
    "env.reward",
    "env.terminated",
    "env.truncated",
    "env.done",
    "env.env_info.half",
    "env.env_info.step",
    "agent.action",
]


@pytest.mark.parametrize("leaf", LEAVES)
def test_one_leaf_that_is_one_column_off(monkeypatch: pytest.MonkeyPatch, leaf: str) -> None:
    """The others are right, and so is what was asked for."""
    bind = LeafRows.__init__

    def shifted(self: LeafRows, name: str, array: Array, columns: slice, n_rows: int) -> None:
        by = int(name == leaf)
        bind(self, name, array, slice(columns.start + by, columns.stop + by), n_rows)

    monkeypatch.setattr(LeafRows, "__init__", shifted)
    refused(rf"worker 0 .*is bound to the wrong place in {leaf}: expected columns 2 to 3 of")


def test_rows_that_are_one_off(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of = LeafRows.of

    def late(self: LeafRows, number: int) -> Any:
        rows = rows_of(self, number)
        return [rows[0], *rows[:-1]]

    monkeypatch.setattr(LeafRows, "of", late)
    refused(r"worker 0 .*is bound to the wrong place in agent.action: expected columns 2 to 3 of")


def test_the_last_of_several_batches_that_is_one_row_off(monkeypatch: pytest.MonkeyPatch) -> None:
    start = BatchViews.start

    def late(self: BatchViews, number: int) -> int:
        return start(self, number) - (number == 2)

    monkeypatch.setattr(BatchViews, "start", late)
    refused(r"worker 0 .*is bound to the wrong place in agent.action", batches=3)


@pytest.mark.parametrize("what", ["a leaf", "a group"])
def test_what_is_left_out(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    bind = EnvironmentShare.bind

    def less(self: EnvironmentShare, *args: Any) -> Any:
        bound = bind(self, *args)
        return [places[1:] for places in bound] if what == "a leaf" else bound[1:]

    monkeypatch.setattr(EnvironmentShare, "bind", less)
    match = {"a leaf": "is not bound to env.observation", "a group": "expected 1 groups of columns"}
    refused(match[what])


def test_an_array_of_another_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = EnvironmentShare.bind

    def confused(self: EnvironmentShare, samples: Any, action: Any, fields: Any, lo: int) -> Any:
        return bind(self, samples, action, {**fields, "done": fields["truncated"]}, lo)

    monkeypatch.setattr(EnvironmentShare, "bind", confused)
    refused(r"worker 0 .*is bound to the wrong place in env\.done")


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize(
    "options", [{}, {"n_groups": 3}, {"participate": True, "n_main": 1}], ids=str
)
def test_what_is_right_passes(options: dict[str, Any], batches: int) -> None:
    """Also where the buffer holds several batches, and not the first of them is to be written."""
    samples: Any = allocate_numbers(
        BatchSpec(T, B),
        observation=np.zeros(3, np.float32),
        agent_info=None,
        storage="managed",
        batches=batches,
    )
    with make(**options) as cage:
        for _ in range(batches):
            cage.set_samples_buffer(samples, slice(2, 2 + N))
            run_groups(cage, "start_reset", 0)
            run_groups(cage, "start_row", 0)
            reward = np.asarray(samples.env.reward[0])
            np.testing.assert_array_equal(reward[2 : 2 + N], [1.0] * N)
            buffer_rotate(samples)
