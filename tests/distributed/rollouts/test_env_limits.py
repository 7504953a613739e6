"""Processes of environments that are replaced at a limit of steps or memory, between two episodes."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import numpy as np
import pytest
from worker_setup import SEED, make_handler, ready

from parllel.distributed.rollouts import (
    EnvWorker,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
)
from parllel.system.processes import RestartBudget
from parllel.system.processes.memory import own_memory
from parllel.testing.dummy_envs import CountingEnv

MB = 2**20


class Leaking(CountingEnv):
    """Keeps 8 MB more in each episode."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.kept = []

    def reset(self, *, seed=None, options=None):
        self.kept.append(np.ones(MB, np.float64))
        return super().reset(seed=seed, options=options)


class Unclosable(CountingEnv):
    """Fails, or hangs, when it is closed."""

    def __init__(self, how, *args):
        super().__init__(*args)
        self.how = how

    def close(self):
        if self.how == "hangs":
            time.sleep(60)
        raise OSError("the port is gone")


def run(workers, n_steps, *, length=4, recurrent=False, see=None, until=lambda: True):
    """Return the worker's fragments, in order, of at least as many steps."""
    with ReplayBuffer(10**6) as buffer, FragmentSender(buffer, capacity=8) as sender:
        schedule = ready(workers, make_handler(recurrent), batch_size=1)
        options = {} if see is None else {"progress_handler": see}
        with RolloutWorker(
            schedule, fragment_length=length, seed=1, sender=sender, **options
        ) as worker:
            worker.run(n_steps)
            while not until():
                worker.run(1)
        assert sender.flush(30)
        return buffer.fetch(buffer.prepared(), 10)


def steps_of(fragments, environment):
    """Return the numbers of the steps in their episodes, as rewards show them, and the marks of the seeds."""
    mine = [one for one in fragments if one.environment == environment]
    assert {one.epoch for one in mine} == {0}
    assert [one.sequence for one in mine] == list(range(len(mine)))
    assert not any(np.any(one.env.aborted) for one in mine)
    valid = [getattr(one.env, "valid", np.ones(len(one.env.reward), bool)) for one in mine]
    numbers = [
        np.floor(np.asarray(one.env.reward)[rows]) for one, rows in zip(mine, valid, strict=True)
    ]
    return np.concatenate(numbers).astype(int).tolist()


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_no_step_is_lost_at_a_limit_of_steps(end, recurrent):
    budget = RestartBudget(0, 60.0)  # allows no restart after a failure
    make = partial(CountingEnv, 5, end=end)
    limited = EnvWorker(make, seed=SEED, budget=budget, most_steps=12)
    other = EnvWorker(make, seed=SEED + 1, index=1)
    first = limited.cage.pid
    fragments = run(
        [limited, other], 60, recurrent=recurrent, length=6, until=lambda: limited.replaced > 1
    )
    for environment in (0, 1):
        found = steps_of(fragments, environment)
        assert found == [1 + i % 5 for i in range(len(found))]
    # Replaced after 15 steps, the first end of an episode beyond 12.
    made = len(steps_of(fragments, 0))
    assert limited.replaced == limited.restarts
    assert limited.replaced == pytest.approx(made / 15, abs=1)
    assert budget.left == 0
    assert other.restarts == 0
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_an_environment_that_leaks_stays_below_its_limit():
    worker = EnvWorker(
        partial(Leaking, 3), seed=SEED, budget=RestartBudget(0, 60.0), most_memory=10**12
    )
    _ = worker.cage.spaces
    before = own_memory(worker.cage.pid)
    worker.close()
    limit = before + 50 * MB
    worker = EnvWorker(
        partial(Leaking, 3), seed=SEED, budget=RestartBudget(0, 60.0), most_memory=limit
    )
    seen, pids = [], set()

    def see(step):
        pids.add(worker.cage.pid)
        seen.append(own_memory(worker.cage.pid))

    fragments = run([worker], 90, see=see, until=lambda: worker.replaced > 1)
    found = steps_of(fragments, 0)
    assert found == [1 + i % 3 for i in range(len(found))]
    assert len(pids) >= 3
    assert worker.replaced >= len(pids) - 1
    # 30 episodes would have kept 240 MB. One episode may go beyond the limit.
    assert max(seen) < limit + 30 * MB
    assert max(seen) > limit - 30 * MB


def test_an_environment_that_cannot_be_closed_is_replaced_with_a_warning():
    worker = EnvWorker(partial(Unclosable, "fails", 5), seed=SEED, most_steps=5)
    with pytest.warns(
        RuntimeWarning, match=r"environment 0: closing .* failed: .*the port is gone"
    ):
        fragments = run([worker], 30)
    assert worker.replaced > 1
    found = steps_of(fragments, 0)
    assert found == [1 + i % 5 for i in range(len(found))]


def test_an_environment_that_hangs_when_it_is_closed_counts_as_failed():
    budget = RestartBudget(2, 600.0, 0.0, 0.0)
    worker = EnvWorker(
        partial(Unclosable, "hangs", 5), seed=SEED, budget=budget, most_steps=5, timeout_s=8.0
    )
    first = worker.cage.pid
    run([worker], 7)
    assert (worker.restarts, worker.replaced, budget.left) == (1, 0, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_an_environment_that_dies_while_it_closes_is_replaced():
    worker = EnvWorker(partial(Unclosable, "hangs", 5), seed=SEED, most_steps=5)
    killed = []

    def see(step):
        if step.terminated and not killed:
            killed.append(worker.cage.pid)
            os.kill(worker.cage.pid, signal.SIGSTOP)
            os.kill(worker.cage.pid, signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match=r"environment 0: closing .* failed: .*SIGKILL"):
        run([worker], 7, see=see)
    assert (worker.restarts, worker.replaced) == (1, 1)


@pytest.mark.parametrize("name", ["most_steps", "most_memory"])
@pytest.mark.parametrize(("limit", "error"), [(0, ValueError), (1.5, TypeError)])
def test_limits_are_whole_numbers(name, limit, error):
    with pytest.raises(error, match=name):
        EnvWorker(CountingEnv, seed=SEED, **{name: limit})
