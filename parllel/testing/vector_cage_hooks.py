"""What the contract of cages of several environments asks of whoever inherits it, and how it drives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gymnasium import spaces

from parllel.buffers import Samples, buffer_rotate
from parllel.cages import CageInterface
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.row_reference import (
    BatchRecord,
    draw_actions,
    make_samples,
    plain,
    read_batch,
)

FIRST = 1  # columns before and after those of the cage are somebody else's
T, BATCHES = 5, 4
# Of five environments, so that neither two workers nor two groups share them evenly.
LENGTHS = ((3, 1, 4, 7), (1,), (20,), (2, 6), (5, 5, 1))
N = len(LENGTHS)
SEEDS = (7, 1, 8, 2, 8)

EnvFactories = Sequence[Callable[[], Any]]


class VectorCageHooks:
    """Hooks, and what the tests share.

    Attributes:
        storage: where the buffers of the tests lie.
    """

    storage: Any = "local"

    def make(
        self, env_factories: EnvFactories, *, samples: Samples | None = None, **options: Any
    ) -> Any:
        """Return a cage of the class under test.

        samples: the buffer that it is going to write, for cages whose processes inherit it.
        options: `traj_info`, `reset_automatically`, `seeds`, `index`, `check`.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how to make a cage")

    def bound(
        self, env_factories: EnvFactories, T: int, *, info: bool = True, **options: Any
    ) -> tuple[Any, Samples]:
        """Return a cage, and samples with a foreign column on either side of those that it writes."""
        n = len(env_factories)
        samples = make_samples(env_factories[0](), T, n + 2, storage=self.storage, info=info)
        cage = self.make(env_factories, samples=samples, **options)
        try:
            cage.set_samples_buffer(samples, slice(FIRST, FIRST + n))
        except BaseException:
            close_anyway(cage)
            raise
        return cage, samples


def run_groups(cage: CageInterface, method: str, *args: Any, **options: Any) -> None:
    """Start something for all groups, so that they overlap, and finish it, the last group first."""
    groups = range(len(cage.groups))
    for group in groups:
        getattr(cage, method)(*args, group=group, **options)
    for group in reversed(groups):
        cage.finish_row(group)


def run_decorrelation(cage: CageInterface, counts: Sequence[int], t: int) -> None:
    """Take random steps of all groups."""
    cage.start_decorrelation(counts, t)
    cage.finish_row()


def record_columns(
    cage: CageInterface,
    samples: Samples,
    actions: Sequence[Sequence[Sequence[Any]]],
    *,
    automatic: bool = True,
    at_row: Callable[[int], None] = lambda step: None,
) -> list[list[BatchRecord]]:
    """Return what each column of a bound cage holds after each batch, as `simulate` tells it of one.

    actions: for each column those of `record`.  at_row: called before each row with its number.
    """
    n, batches = cage.n, len(actions[0])
    columns: list[list[BatchRecord]] = [[] for _ in range(n)]
    step = 0
    for k in range(batches):
        if k == 0 or not automatic:
            run_groups(cage, "start_reset", 0, everyone=k == 0)
        needs, T = [cage.needs_reset.tolist()], len(actions[0][k])
        for t in range(T):
            for i in range(n):
                samples.agent.action[t, FIRST + i] = actions[i][k][t]
            at_row(step)
            step += 1
            run_groups(cage, "start_row", t)
            needs.append(cage.needs_reset.tolist())
        _record_batch(cage, samples, needs, T, columns)
        buffer_rotate(samples.env)
    return columns


def _record_batch(
    cage: CageInterface,
    samples: Samples,
    needs: list[list[bool]],
    T: int,
    columns: list[list[BatchRecord]],
) -> None:
    final, trajs = cage.collect_final_observations(), cage.collect_completed_trajs()
    # Episodes come by column and then in time; final observations say where they belong.
    order = sorted(found.column - FIRST for found in final)
    assert len(order) == len(trajs)
    for i, column in enumerate(columns):
        made = read_batch(samples, FIRST + i, T)
        made.needs_reset = [row[i] for row in needs]
        mine = [found for found in final if found.column == FIRST + i]
        made.final = [(found.row, found.observation) for found in mine]
        made.trajs = [
            (traj.length, traj.return_, traj.discounted_return)
            for j, traj in zip(order, trajs, strict=True)
            if j == i
        ]
        column.append(made)


def close_anyway(cage: Any) -> None:
    """Close a cage while another error is on its way."""
    with suppress(Exception):
        cage.close()


def factories_of(**options: Any) -> list[partial[CountingEnv]]:
    """Return what makes environments with uneven episodes."""
    return [partial(CountingEnv, lengths, **options) for lengths in LENGTHS]


def draw_columns(space: Any = None, T: int = T, batches: int = BATCHES) -> list[Any]:
    """Return actions for `record_columns`."""
    space = spaces.Discrete(4) if space is None else space
    return [draw_actions(space, i, batches, T) for i in range(N)]


def clocks(samples: Any, t: int) -> list[list[float]]:
    """Return (episode, step) of each environment's observation in a row."""
    return [plain(samples.env.observation, t, FIRST + i)[1:].tolist() for i in range(N)]
