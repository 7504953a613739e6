"""Hooks of the cage contracts, and helpers that drive cages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gymnasium import spaces

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_rotate
from parllel.cages.cage_interface import CageInterface
from parllel.testing.cages.row_reference import (
    BatchRecord,
    draw_actions,
    make_samples,
    plain,
    read_batch,
)
from parllel.testing.dummy_envs import CountingEnv

FIRST = 1  # columns before and after those of the cage belong to others
T, BATCHES = 5, 4
# Of five environments, so that neither two workers nor two groups share them evenly.
# 20 is T * BATCHES, an episode that spans all batches and ends with the very last row; 1 is an end
# in every row, also in the first and the last of a batch.
LENGTHS = ((3, 1, 4, 7), (1,), (20,), (2, 6), (5, 5, 1))
N = len(LENGTHS)
# Two are equal: `test_seeds_decide` compares their columns.
SEEDS = (7, 1, 8, 2, 8)

EnvFactories = Sequence[Callable[[], Any]]


class CageHooks:
    """Hooks and shared helpers of the tests.

    Attributes:
        n: number of environments in the tests' cages, at most five.
        storage: of the tests' buffers.
    """

    n = N
    storage: Any = "local"

    def make(
        self, env_factories: EnvFactories, *, samples: Samples | None = None, **options: Any
    ) -> Any:
        """Return a cage of the class under test.

        samples: the buffer that the cage will write, for cages whose processes inherit it.
        options: `seeds`, one for each environment; `traj_info`, `reset_automatically`, `index`, `check`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make() to create a cage")

    def each(self, value: Any) -> list[Any]:
        """Return the value of a cage's attribute or method as a list by environment."""
        values: list[Any] = value
        return values

    def env_name(self, name: str) -> str:
        """Return the name that cages give environments of a class, for tests whose `made` wraps them."""
        return name

    def made(self, env_factories: EnvFactories, **options: Any) -> Any:
        """Return a cage with the tests' seeds."""
        return self.make(env_factories, **{"seeds": SEEDS[: len(env_factories)], **options})

    def bound(
        self, env_factories: EnvFactories, T: int = T, *, info: bool = True, **options: Any
    ) -> tuple[Any, Samples]:
        """Return a cage, and samples with a foreign column on either side of those that it writes."""
        n = len(env_factories)
        # Before the cage: memory in "shared" storage reaches a worker only when its process starts.
        samples = make_samples(env_factories[0](), T, n + 2, storage=self.storage, info=info)
        cage = self.made(env_factories, samples=samples, **options)
        try:
            cage.set_samples_buffer(samples, slice(FIRST, FIRST + n))
        except BaseException:
            # Its workers would outlive the failed test.
            close_quietly(cage)
            raise
        return cage, samples

    def factories(self, **options: Any) -> list[partial[CountingEnv]]:
        """Return factories of environments with episodes of uneven lengths."""
        return factories_of(**options)[: self.n]

    def actions(self) -> list[Any]:
        """Return actions for `record_columns`."""
        return draw_columns()[: self.n]

    def clocks(self, samples: Any, t: int) -> list[list[float]]:
        """Return (episode, step) of each environment's observation in a row."""
        return clocks(samples, t, self.n)


class SingleCageHooks(CageHooks):
    """Hooks of a cage of one environment, whose attributes are those of the environment."""

    n = 1

    def each(self, value: Any) -> list[Any]:
        """Return the value in a list."""
        return [value]


def run(cage: CageInterface, method: str, *args: Any, **options: Any) -> None:
    """Start a call and finish it. Either half may raise."""
    getattr(cage, method)(*args, **options)
    cage.finish_row()


def run_groups(cage: CageInterface, method: str, *args: Any, **options: Any) -> None:
    """Start a call for all groups, so that they overlap, and finish it, the last group first."""
    groups = range(len(cage.groups))
    # All are started before any is finished, so that workers really step several groups at a time,
    # and a process that writes beyond its own columns meets the rows of another group.
    for group in groups:
        getattr(cage, method)(*args, group=group, **options)
    # Against the order of the start: no group may depend on another having been finished.
    for group in reversed(groups):
        cage.finish_row(group)


def run_rows(cage: CageInterface, rows: int, method: str = "start_row") -> None:
    """Reset all environments and step them for some rows, from row 0 on."""
    run_groups(cage, "start_reset", 0)
    for t in range(rows):
        run_groups(cage, method, t)


def record_columns(
    cage: CageInterface,
    samples: Samples,
    actions: Sequence[Sequence[Sequence[Any]]],
    *,
    automatic: bool = True,
    first: int = FIRST,
    at_row: Callable[[int], None] = lambda step: None,
) -> list[list[BatchRecord]]:
    """Return the content of each column of a bound cage after each batch, in the format of `simulate`.

    actions: of each column, batch and row.  first: column.  at_row: called before each row with its number.
    """
    n, batches = cage.n, len(actions[0])
    columns: list[list[BatchRecord]] = [[] for _ in range(n)]
    step = 0
    for k in range(batches):
        # Later batches continue without a reset, from the row T that `buffer_rotate` has brought to
        # row 0. Without automatic resets, only the environments that wait begin anew there.
        if k == 0 or not automatic:
            run_groups(cage, "start_reset", 0, all_envs=k == 0)
        needs, T = [cage.needs_reset.tolist()], len(actions[0][k])
        for t in range(T):
            # Before the start: until the row is finished, its memory belongs to the workers.
            for i in range(n):
                samples.agent.action[t, first + i] = actions[i][k][t]
            at_row(step)
            step += 1
            run_groups(cage, "start_row", t)
            # As a list, since the cage changes its flags in place.
            needs.append(cage.needs_reset.tolist())
        # Before the rotation, which overwrites the first rows of the batch.
        _record_batch(cage, samples, needs, T, columns, first)
        buffer_rotate(samples.env)
    return columns


def _record_batch(
    cage: CageInterface,
    samples: Samples,
    needs: list[list[bool]],
    T: int,
    columns: list[list[BatchRecord]],
    first: int,
) -> None:
    final, trajs = cage.collect_final_observations(), cage.collect_completed_trajs()
    # Episodes come by column and then in time; final observations say where they belong.
    order = sorted(found.column - first for found in final)
    # Each episode must be in both lists: nothing else ties one to its column, as a TrajInfo does
    # not know its own.
    assert len(order) == len(trajs)
    for i, column in enumerate(columns):
        made = read_batch(samples, first + i, T)
        made.needs_reset = [row[i] for row in needs]
        # Each process reports its own columns, and the cage joins the reports: an episode of
        # another column here means that they were joined in the wrong order.
        mine = [found for found in final if found.column == first + i]
        made.final = [(found.row, found.observation) for found in mine]
        made.trajs = [
            (traj.length, traj.return_, traj.discounted_return)
            for j, traj in zip(order, trajs, strict=True)
            if j == i
        ]
        column.append(made)


def await_done(cage: CageInterface, group: int = 0) -> None:
    """Poll a cage until a row is done."""
    # `row_done` never waits, so the cage's time-out does not apply. It is also True for a row that
    # failed: only a worker that hangs reaches this limit.
    deadline = time.monotonic() + 20.0
    while not cage.row_done(group):
        assert time.monotonic() < deadline, f"row_done({group}): still False after 20 s"
        time.sleep(0.001)


def notes_of(error: BaseException) -> str:
    """Return the text, notes and cause of an exception."""
    said = [str(error), *getattr(error, "__notes__", ())]
    # The worker's traceback. For an exception that cannot be pickled, its notes are only there.
    if error.__cause__ is not None:
        said.append(str(error.__cause__))
    return "\n".join(said)


def close_quietly(cage: Any) -> None:
    """Close a cage and ignore errors."""
    with suppress(Exception):
        cage.close()


def factories_of(**options: Any) -> list[partial[CountingEnv]]:
    """Return factories of environments with episodes of uneven lengths."""
    return [partial(CountingEnv, lengths, **options) for lengths in LENGTHS]


def draw_columns(space: Any = None, T: int = T, batches: int = BATCHES) -> list[Any]:
    """Return actions for `record_columns`."""
    space = spaces.Discrete(4) if space is None else space
    return [draw_actions(space, i, batches, T) for i in range(N)]


def clocks(samples: Any, t: int, n: int = N) -> list[list[float]]:
    """Return (episode, step) of each environment's observation in a row."""
    return [plain(samples.env.observation, t, FIRST + i)[1:].tolist() for i in range(n)]
