from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

from parllel.buffers.tree import buffer_close
from parllel.cages import SynchronizedProcessCage, TrajInfo, VectorizedCage
from parllel.samplers import Plan
from parllel.seeding import Seeds
from parllel.system.processes import RestartBudget
from parllel.testing.cages.row_reference import make_samples
from parllel.testing.dummy_envs import CountingEnv
from parllel_patterns import build_cages


def close(cages):
    for cage in cages:
        cage.close()


def marks(cages):
    """Return what each environment drew from its seed, and its first random action."""
    n = sum(cage.n for cage in cages)
    samples = make_samples(CountingEnv(), 1, n, storage="managed")
    first = 0
    for cage in cages:
        cage.set_samples_buffer(samples, slice(first, first + cage.n))
        first += cage.n
        for start in (cage.start_reset, cage.start_random_row):
            start(0)
            cage.finish_row()
    observation, action = np.array(samples.env.observation), np.array(samples.agent.action)
    buffer_close(samples)
    return [(float(observation[0, b, 0]), int(action[0, b])) for b in range(n)]


FORKED = {"parallel": Plan(1, 1), "start_method": "fork"}
ALONE = {"parallel": Plan(1), "start_method": "fork"}


@pytest.mark.parametrize("options", [{}, FORKED], ids=["here", "processes"])
def test_environments_are_seeded_by_name_and_place(options):
    cages = build_cages(CountingEnv, 3, seeds=Seeds(0), **options)
    try:
        found = marks(cages)
        for (mark, action), seed in zip(found, Seeds(0).spawn("environments", 3), strict=True):
            env = CountingEnv()
            first, second = (int(word) for word in seed.generate_state(2))
            env.action_space.seed(second)
            assert (mark, action) == (env.reset(seed=first)[0][0], env.action_space.sample())
    finally:
        close(cages)
    assert len({mark for mark, _ in found}) == 3


def test_evaluation_gets_seeds_of_its_own():
    seeds = Seeds(0)
    cages = build_cages(CountingEnv, 2, seeds=seeds)
    cages += build_cages(CountingEnv, 2, seeds=seeds, name="evaluation")
    assert len({mark for mark, _ in marks(cages)}) == 4
    message = (
        "the seeds of 'environments' were already drawn.* create seeds = Seeds.* in the same cell"
    )
    with pytest.raises(ValueError, match=message):
        build_cages(CountingEnv, 2, seeds=seeds)
    close(cages)


def test_kinds_of_cages():
    here = build_cages(CountingEnv, 2, seeds=Seeds(0))
    plan = Plan(2, 1, n_groups=2)
    (spread,) = build_cages(CountingEnv, 6, seeds=Seeds(0), parallel=plan, start_method="fork")
    assert [type(cage) for cage in here] == [VectorizedCage]
    assert isinstance(spread, SynchronizedProcessCage)
    assert (here[0].n, spread.n) == (2, 6)
    assert len(set(spread.pids)) == 2
    assert spread.groups == [slice(0, 3), slice(3, 6)]
    close([*here, spread])


@pytest.mark.parametrize("cores", [1, 2])
def test_true_lets_the_machine_decide(monkeypatch, cores):
    # A step of this takes long, so with a second core a worker pays.
    monkeypatch.setattr("parllel.samplers.planner.available_cores", lambda n: cores)
    cages = build_cages(partial(SlowEnv, 0.002), 4, seeds=Seeds(0), parallel=True)
    try:
        assert isinstance(cages[0], SynchronizedProcessCage) == (cores > 1)
    finally:
        close(cages)
    (cage,) = build_cages(CountingEnv, 1, seeds=Seeds(0), parallel=True)
    assert isinstance(cage, VectorizedCage)
    close([cage])


class SlowEnv(CountingEnv):
    def __init__(self, seconds):
        super().__init__(5)
        self._seconds = seconds

    def step(self, action):
        time.sleep(self._seconds)
        return super().step(action)


@pytest.mark.parametrize("options", [{}, ALONE], ids=["here", "processes"])
def test_arguments_reach_the_cages(options):
    cages = build_cages(
        partial(CountingEnv, 2),
        1,
        seeds=Seeds(0),
        traj_info=partial(TrajInfo, discount=0.5),
        reset_automatically=False,
        **options,
    )
    cage = cages[0]
    samples = make_samples(CountingEnv(), 2, 1, storage="managed")
    cage.set_samples_buffer(samples, slice(0, 1))
    for start, t in ((cage.start_reset, 0), (cage.start_row, 0), (cage.start_row, 1)):
        start(t)
        cage.finish_row()
    assert cage.needs_reset.tolist() == [True]
    assert [traj.discounted_return for traj in cage.collect_completed_trajs()] == [1 + 0.5 * 2]
    close(cages)


class ThirdFails:
    """Make environments, of which the third fails; it counts those that are closed."""

    def __init__(self):
        self.made = []

    def __call__(self):
        if len(self.made) == 2:
            raise OSError("no more simulators")
        self.made.append(CountingEnv())
        return self.made[-1]


def test_if_one_cannot_be_made_the_others_are_closed():
    factory = ThirdFails()
    with pytest.raises(OSError, match="no more simulators"):
        build_cages(factory, 4, seeds=Seeds(0))
    assert [env.closed for env in factory.made] == [1, 1]


@pytest.mark.parametrize("options", [{}, ALONE], ids=["here", "processes"])
def test_arguments_that_nobody_knows_are_refused(options):
    with pytest.raises(TypeError, match=r"^build_cages: .* 'paralel'; did you mean parallel\?$"):
        build_cages(CountingEnv, 2, seeds=Seeds(0), paralel=True, **options)


def fail():
    raise OSError("no simulator")


def test_if_a_process_cannot_make_its_own_no_process_is_left():
    # Checked by the guard that watches every test.
    with pytest.raises(OSError, match="no simulator"):
        build_cages(fail, 3, seeds=Seeds(0), **ALONE)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"n_envs": 0}, ValueError, "n_envs: expected an int of at least 1 .*, got 0"),
        (
            {"n_envs": 0, "name": "evaluation"},
            ValueError,
            "n_envs: .* number of 'evaluation', got 0",
        ),
        ({"n_envs": 2.0}, ValueError, r"n_envs: .*, got 2\.0"),
        ({"n_envs": None}, ValueError, "n_envs: .*, got None"),
        ({"seeds": 0}, TypeError, r"seeds: expected Seeds, got 0; pass Seeds\(0\)"),
        ({"seeds": None}, TypeError, r"seeds: expected Seeds, got None; pass Seeds\(None\)"),
        ({"seeds": "a"}, TypeError, "seeds: expected Seeds, got 'a'$"),
        (
            {"parallel": Plan(2, 2)},
            ValueError,
            "parallel: expected a Plan with at least one environment for each of its 2 workers, got n_main=2 "
            "and 2 environments in total; use n_main=0",
        ),
        (
            {"parallel": Plan(3)},
            ValueError,
            "parallel: .* its 3 workers, got n_main=0 and 2 environments .*; use 2 workers or fewer",
        ),
        ({"parallel": 2}, TypeError, r"parallel: expected a bool or a Plan, got 2; pass Plan\(2\)"),
        ({"parallel": "yes"}, TypeError, "parallel: expected a bool or a Plan, got 'yes'$"),
        # Which workers decide, where there may be none.
        ({"n_workers": 2}, TypeError, r"n_workers: expected it in a Plan, as in parallel=Plan\("),
        ({"parallel": Plan(1), "n_main": 1}, TypeError, "n_main: expected it in a Plan"),
    ],
)
def test_wrong_arguments_are_named(wrong, error, message):
    right = {"n_envs": 2, "seeds": Seeds(0)}
    with pytest.raises(error, match="build_cages: " + message):
        close(build_cages(CountingEnv, **{**right, **wrong}))


def test_restarts_put_all_environments_into_workers() -> None:
    budget = RestartBudget(1, 60.0)
    with ExitStack() as stack:
        (cage,) = build_cages(
            CountingEnv, 2, seeds=Seeds(0), parallel=True, restarts=budget, stack=stack
        )
        assert isinstance(cage, SynchronizedProcessCage)
        assert cage.restarts == 0
    for parallel, given in ((False, "False"), (Plan(1, n_main=1), r"Plan\(1, n_main=1\)")):
        with pytest.raises(ValueError, match=f"restarts: expected all .* got parallel={given}"):
            build_cages(CountingEnv, 2, seeds=Seeds(0), parallel=parallel, restarts=budget)
