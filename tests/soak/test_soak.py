"""Long runs of a SynchronizedProcessCage: nothing grows, and nothing that happens to workers is lost on it.

PARLLEL_SOAK_STEPS (10,000,000) and PARLLEL_SOAK_TRIALS (200) shorten or lengthen them.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from private_memory import private_memory

from parllel.buffers.tree import buffer_rotate
from parllel.cages import SynchronizedProcessCage
from parllel.errors import WorkerDiedError, WorkerTimeoutError
from parllel.system.processes.process_table import process_runs
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import FIRST, record_columns, run_groups
from parllel.testing.cages.row_reference import (
    BatchRecord,
    assert_same_batches,
    assert_same_tree,
    draw_actions,
    make_samples,
    read_batch,
    simulate,
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

STEPS = int(os.environ.get("PARLLEL_SOAK_STEPS", 10_000_000))
TRIALS = int(os.environ.get("PARLLEL_SOAK_TRIALS", 200))
B, T = 64, 64
WARM_UP = 0.2  # of the batches; allocators and caches fill
MAY_GROW = (
    2 * 2**20
)  # bytes: pages that were there are touched late; 0.2 bytes per step would be seen
SETTINGS: list[dict[str, Any]] = [
    {"n_workers": 2},
    {"n_workers": 1, "participate": True},
    {"n_workers": 3, "n_groups": 2},
    {"n_workers": 2, "n_groups": 2, "participate": True, "wait": "semaphore"},
]


class TrivialEnv(gym.Env[Any, Any]):
    """Costs next to nothing, and ends at random."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 200))
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        return np.full(4, 0.5, np.float32), 1.0, self._left == 0, False, {}


def holdings(pids: list[int]) -> tuple[list[int], list[int], int]:
    """Return memory in bytes and descriptors of each process, and how many children there are."""
    processes = [psutil.Process(), *map(psutil.Process, pids)]
    memory = [private_memory(process.pid) for process in processes]
    descriptors = [process.num_fds() for process in processes]
    return memory, descriptors, len(processes[0].children(recursive=True))


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_nothing_grows(setting: int) -> None:
    batches = max(STEPS // (B * T), 10)
    samples = make_samples(TrivialEnv(), T, B, storage="managed", info=False)
    steps = returned = 0
    with SynchronizedProcessCage([TrivialEnv] * B, seeds=range(B), **SETTINGS[setting]) as cage:
        cage.set_samples_buffer(samples, slice(0, B))
        run_groups(cage, "start_reset", 0)
        for k in range(batches):
            if k == int(WARM_UP * batches):
                before = holdings(cage.pids)
            for t in range(T):
                run_groups(cage, "start_row", t)
            steps += sum(traj.length for traj in cage.collect_completed_trajs())
            returned += len(cage.collect_final_observations())
            buffer_rotate(samples.env)
        after = holdings(cage.pids)
    assert 0 <= batches * T * B - steps <= 200 * B  # all but the episodes in progress
    assert returned > 0
    assert after[1:] == before[1:]
    grown = [now - then for now, then in zip(after[0], before[0], strict=True)]
    assert max(grown) < MAY_GROW, f"bytes that main and workers grew by: {grown}"


LENGTHS = ((3, 1, 4, 7), (1,), (20,), (2, 6), (5, 5, 1))
EVENTS = ("kill", "stop", "stop and continue")


def disturb(pid: int, event: str, pause_s: float) -> None:
    with suppress(ProcessLookupError):  # the run was over first
        os.kill(pid, signal.SIGKILL if event == "kill" else signal.SIGSTOP)
        if event == "stop and continue":
            threading.Event().wait(pause_s)
            os.kill(pid, signal.SIGCONT)


def assert_rows_are_whole(samples: Any, rows: int, expected: list[BatchRecord]) -> None:
    """Compare the rows of a batch that were finished before something happened."""
    for i, right in enumerate(expected if rows else []):
        made = read_batch(samples, FIRST + i, len(right.rewards))
        assert made.rewards[:rows] == [float(np.float32(r)) for r in right.rewards[:rows]]
        assert_same_tree(made.observations[:rows], right.observations[:rows], "observations")


def run_disturbed(trial: int) -> str:
    """Run a cage to which something happens; return how it ended, the rest being as it should."""
    chance = random.Random(trial)
    n, T, batches = len(LENGTHS), 20, 4
    factories = [partial(CountingEnv, lengths, layout="dict") for lengths in LENGTHS]
    actions = [draw_actions(spaces.Discrete(4), i, batches, T) for i in range(n)]
    expected = [simulate(factory(), i, actions[i]) for i, factory in enumerate(factories)]
    samples = make_samples(factories[0](), T, n + 2, storage="managed")
    event = chance.choice(EVENTS)
    reached = [0]
    cage = SynchronizedProcessCage(
        factories,
        seeds=range(n),
        start_method=("fork", "forkserver", "spawn")[trial % 3],
        timeout_s=6.0 if event == "stop" else 30.0,
        **SETTINGS[chance.randrange(len(SETTINGS))],
    )
    args = (chance.choice(cage.pids), event, chance.uniform(0.0, 0.2))
    timer = threading.Timer(chance.uniform(0.0, 0.05), disturb, args)
    early = chance.random() < 0.2  # while the workers start
    pids = cage.pids
    found: list[list[BatchRecord]] | None = None
    ending = "right to the end"
    try:
        with cage:
            if early:
                timer.start()
            cage.set_samples_buffer(samples, slice(FIRST, FIRST + n))
            if not early:
                timer.start()
            found = record_columns(
                cage, samples, actions, at_row=lambda step: reached.__setitem__(0, step)
            )
    except (WorkerDiedError, WorkerTimeoutError) as error:
        ending = type(error).__name__ + ("" if "worker" in str(error) else " without a name")
    if found is None:
        k, t = divmod(reached[0], T)
        assert_rows_are_whole(samples, t, [column[k] for column in expected])
    else:  # perhaps it happened while the cage was closed
        for mine, theirs in zip(found, expected, strict=True):
            assert_same_batches(mine, theirs)
    if timer.ident is not None:  # on a busy machine workers may not even start in time
        timer.join()
    assert not any(process_runs(pid) for pid in pids)
    return f"{event}: {ending}"


def test_workers_are_killed_stopped_and_continued_at_random_moments() -> None:
    endings = Counter(run_disturbed(trial) for trial in range(TRIALS))
    print(dict(sorted(endings.items())))
    possible = {f"{event}: right to the end" for event in EVENTS}
    possible |= {"kill: WorkerDiedError", "stop: WorkerTimeoutError"}
    assert set(endings) <= possible, endings
