from __future__ import annotations

import math
import time
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.agents import NumpyHandler
from parllel.cages import Spaces, VectorEnvFactory
from parllel.samplers import Plan, measure_inference, plan_sampling, step_cost
from parllel.samplers.planner import (
    ENV_ROW_S,
    ROW_S,
    SIGNAL_S,
    WAKE_S,
    best_plan,
    candidates,
    plan_s,
)
from parllel.samplers.step_cost import StepCost, measure_step, measure_step_cost
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv

US = 1e-6


def plan(n_envs, n_cores, step_us, inference_us=None):
    act = None if inference_us is None else (lambda b: inference_us * US)
    return plan_sampling(
        CountingEnv, n_envs, step_s=step_us * US, n_cores=n_cores, inference_cost=act
    )


def test_one_core_keeps_everything_here():
    found = plan(16, 1, 1000)
    assert (found.n_workers, found.n_main) == (0, 16)


def test_steps_too_short_to_share_stay_here():
    assert plan(4, 2, 1).n_workers == 0
    assert plan(1, 8, 1000).n_workers == 0


def test_two_cores_share_evenly():
    found = plan(16, 2, 10)
    assert (found.n_workers, found.n_main, found.n_groups) == (1, 8, 1)
    assert found.spin_us > 0


def test_many_cores_are_all_used():
    found = plan(64, 8, 100)
    assert (found.n_workers, found.n_main) == (7, 8)
    assert plan(7, 8, 100).n_workers + 1 == 7


def test_an_agent_that_thinks_long_is_alternated_with():
    # One group: 400 + 6 * 100; two: 8 * 100 in each worker, and as much thought in main.
    found = plan(16, 3, 100, inference_us=400)
    assert (found.n_workers, found.n_groups, found.n_main) == (2, 2, 0)
    assert plan(16, 3, 100, inference_us=1).n_groups == 1


def test_without_the_cost_of_the_agent_there_is_one_group():
    assert {plan(n, c, 100).n_groups for n in (2, 16) for c in (1, 2, 4)} == {1}


def brute_force(n_envs, n_cores, step_s, act):
    """The formulas of the design, for every number of workers, shares and groups."""
    each_s = step_s + ENV_ROW_S
    best = ROW_S + n_envs * each_s + act(n_envs)
    for workers in range(1, min(n_cores, n_envs) + 1):
        wake = SIGNAL_S + (WAKE_S if workers == n_cores else 0)
        for main in range(n_envs - workers + 1):
            if main and workers == n_cores:
                continue
            theirs = math.ceil((n_envs - main) / workers) * each_s
            best = min(best, ROW_S + act(n_envs) + wake + max(theirs, main * each_s))
            if n_envs > 1:
                acting = 2 * (ROW_S + act(n_envs // 2))
                alone = acting + 2 * wake + main * each_s
                busy = (n_envs * each_s + acting) / n_cores
                best = min(best, max(theirs + 2 * SIGNAL_S, alone, busy))
    return best


# Microseconds of a row of CartPole in one process, and over a worker and this one, by number of environments:
# medians of interleaved batches on two idle cores.
MEASURED = {
    2: (15.6, 13.4),
    3: (21.4, 18.4),
    4: (27.0, 19.4),
    5: (32.0, 24.6),
    6: (37.6, 24.7),
    8: (48.7, 31.7),
    16: (90.9, 53.5),
}


@pytest.mark.parametrize("step_us", [4.0, 4.5, 5.2, 6.6])
@pytest.mark.parametrize("n_envs", MEASURED)
def test_few_short_environments_are_where_they_were_measured_to_be_fastest(n_envs, step_us):
    """Whatever the measurement of a step says on a machine that is more or less quiet."""
    here, spread = MEASURED[n_envs]
    chosen = spread if plan(n_envs, 2, step_us).n_workers else here
    assert chosen <= 1.05 * min(here, spread)


def test_the_row_of_a_plan_by_hand():
    # 5 us for the row, 3.5 us for the signal, and 6 + 1 us for each environment.
    step = StepCost(6 * US)
    row = partial(plan_s, n_envs=4, step=step, n_cores=2, act=lambda b: 20 * US)
    assert row(Plan(0, 4)) == pytest.approx((5 + 20 + 4 * 7) * US)
    assert row(Plan(1, 2)) == pytest.approx((5 + 20 + 3.5 + 2 * 7) * US)
    assert row(Plan(1, 1)) == pytest.approx((5 + 20 + 3.5 + 3 * 7) * US)
    # Both groups: the agent acts twice for two; this process is the slower one.
    assert row(Plan(1, 1, 2)) == pytest.approx((2 * (5 + 20) + 2 * 3.5 + 7) * US)
    # Not one core is left over: the worker has to be woken.
    assert row(Plan(1, 2), n_cores=1) == pytest.approx((5 + 20 + 3.5 + 60 + 4 * 7) * US)


def test_cores_that_others_keep_busy_are_not_planned_for(monkeypatch):
    monkeypatch.setattr("parllel.samplers.planner.available_cores", lambda n: 1)
    assert plan_sampling(CountingEnv, 16, step_s=1e-3).n_workers == 0
    monkeypatch.setattr("parllel.samplers.planner.available_cores", lambda n: 2)
    assert plan_sampling(CountingEnv, 16, step_s=1e-3).n_workers == 1


@settings(max_examples=200)
@given(
    n_envs=st.integers(1, 40),
    n_cores=st.integers(1, 9),
    step_us=st.floats(0.5, 1000),
    fixed_us=st.floats(1, 1000),
    each_us=st.floats(0, 20),
)
def test_the_plan_is_as_good_as_the_best(n_envs, n_cores, step_us, fixed_us, each_us):
    def act(b):
        return (fixed_us + b * each_us) * US

    found = plan_sampling(
        CountingEnv, n_envs, step_s=step_us * US, n_cores=n_cores, inference_cost=act
    )
    if found.n_workers:
        predicted = plan_s(found, n_envs, StepCost(step_us * US), n_cores, act)
        assert found.n_workers + found.n_main <= n_envs
        assert found.n_workers + bool(found.n_main) <= n_cores
    else:
        predicted = ROW_S + n_envs * (step_us * US + ENV_ROW_S) + act(n_envs)
    # Plans of fewer parts are preferred as long as they are nearly as good, at each of a few choices.
    assert predicted <= brute_force(n_envs, n_cores, step_us * US, act) / 0.95**3 * (1 + 1e-9)


def test_plans_say_what_they_are():
    assert (
        "1 worker and 8 environments in this process, one group: 10.0 us per step and 2 available cores"
        in str(plan(16, 2, 10))
    )
    assert str(plan(2, 1, 10)).startswith("all environments in this process: ")
    assert str(Plan(3, n_groups=2)) == "3 workers, two groups: fixed by hand"


@pytest.mark.parametrize("wrong", [{"n_envs": 0}, {"n_cores": 0}, {"step_s": -1.0}])
def test_numbers_have_to_be_positive(wrong):
    arguments = {"n_envs": 4, "n_cores": 2, "step_s": 1.0, **wrong}
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}: expected a positive number"):
        plan_sampling(CountingEnv, **arguments)


def test_candidates_leave_every_worker_something():
    for plan_ in candidates(5, 4, two_groups=True):
        assert 1 <= plan_.n_workers <= 5 - plan_.n_main


def native(each_us, fixed_us, busy_cores=1.0):
    return StepCost(each_us * US, fixed_us * US, busy_cores, native=True)


def test_a_native_environment_whose_rows_cost_the_same_at_any_size_stays_here():
    assert best_plan(128, native(0.1, 200), 8).n_workers == 0
    assert best_plan(128, native(50, 0.1), 8).n_workers == 7


def test_a_native_environment_with_threads_on_all_cores_stays_here():
    assert best_plan(128, native(50, 10, busy_cores=4), 4).n_workers == 0
    assert best_plan(128, native(50, 10, busy_cores=1), 4).n_workers == 3


def test_each_group_of_a_native_environment_costs_a_row_of_its_own():
    one, two = Plan(1, 8, 1), Plan(1, 8, 2)
    step = native(0, 100)
    free = partial(plan_s, n_envs=16, step=step, n_cores=2, act=lambda b: 0.0)
    assert free(plan=one) == pytest.approx(100 * US + SIGNAL_S + ROW_S)
    assert free(plan=two) == pytest.approx(200 * US + 2 * (SIGNAL_S + ROW_S))


def test_the_plan_of_a_native_environment_says_what_a_row_costs():
    why = best_plan(16, native(2, 30, busy_cores=1.5), 2).why
    assert why.startswith(
        "30 us per row of a native vector environment and 2.0 us per step on 1.5 cores and 2"
    )


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_native_environment_is_measured_as_a_whole_and_closed(mode):
    made = []

    def make(n):
        made.append(SyncVectorEnv([partial(CountingEnv, 4)] * n, autoreset_mode=mode))
        return made[-1]

    cost = measure_step_cost(VectorEnvFactory(make), 4, seconds=0.02)
    assert cost.native
    assert cost.seconds(4) > 0
    assert cost.seconds(4) >= cost.seconds(2) >= cost.seconds(0) == 0
    assert sorted(env.num_envs for env in made) == [2, 4]
    assert all(env.closed for env in made)


def test_of_one_native_environment_there_is_no_line_to_draw():
    cost = measure_step_cost(VectorEnvFactory(lambda n: SyncVectorEnv([CountingEnv] * n)), 1, 0.01)
    assert cost.native
    assert cost.fixed_s == 0


class SleepingEnv(CountingEnv):
    closed_ones = 0

    def step(self, action):
        time.sleep(0.003)
        return super().step(action)

    def close(self):
        SleepingEnv.closed_ones += 1
        super().close()


def test_a_step_is_measured_and_the_environment_closed():
    before = SleepingEnv.closed_ones
    seconds = measure_step(partial(SleepingEnv, 4), seconds=0.03)
    assert seconds >= 0.003
    assert SleepingEnv.closed_ones == before + 1


def test_few_steps_are_made_of_an_environment_that_is_slow():
    made = []

    class Slow(SleepingEnv):
        def step(self, action):
            made.append(self)
            return super().step(action)

    measure_step(partial(Slow, 40), seconds=0.002)
    assert len(made) == 4  # three are not counted, and the fourth takes all the time there is


class ThinkingAgent(CountingAgent):
    asked: list[int] = []
    dtypes: set[np.dtype] = set()

    def step(self, observation, **options):
        self.asked.append(len(observation))
        self.dtypes.add(observation.dtype)
        time.sleep(0.002)
        return super().step(observation, **options)


def test_acting_is_measured_without_touching_what_is_drawn():
    agent = ThinkingAgent(4, seed=3)
    handler = NumpyHandler(agent)
    env = CountingEnv(layout="float64")
    cost = measure_inference(handler, Spaces(env.observation_space, env.action_space, "x"), 3)
    assert cost(5) >= 0.002
    assert set(agent.asked) == {5}
    asked = len(agent.asked)
    assert cost(5) >= 0.002
    assert len(agent.asked) == asked
    assert agent.dtypes == {np.dtype(np.float32)}  # what a batch holds of float64
    untouched = CountingAgent(4, seed=3)
    assert (agent.draw_noise(3, 2) == untouched.draw_noise(3, 2)).all()


class Interrupted(gym.Env):
    """Steps of a millisecond; one is held up as if another program had the core."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, clock):
        self.clock, self.n = clock, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.n += 1
        self.clock[0] += 0.050 if self.n == 20 else 0.001
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_a_pause_of_the_machine_is_not_a_cost_of_a_step(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(step_cost.time, "perf_counter", lambda: clock[0])
    assert measure_step(lambda: Interrupted(clock), seconds=0.1) == pytest.approx(0.001)


class CountedActions(gym.spaces.Discrete):
    drawn = 0

    def sample(self, *args, **options):
        self.drawn += 1
        return super().sample(*args, **options)


def test_actions_are_drawn_before_steps_are_timed(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(step_cost.time, "perf_counter", lambda: clock[0])
    env = Interrupted(clock)
    env.action_space = CountedActions(2)
    measure_step(lambda: env, seconds=0.2)
    assert env.n > 100
    assert env.action_space.drawn == step_cost.MAX_ACTIONS


def test_a_step_is_measured_though_others_have_the_core(monkeypatch):
    ticks = iter(range(1_000_000))  # a second passes between any two looks at the clock
    monkeypatch.setattr(step_cost.time, "perf_counter", lambda: float(next(ticks)))
    cost = measure_step_cost(
        VectorEnvFactory(lambda n: SyncVectorEnv([partial(CountingEnv, 4)] * n)), 4, seconds=0.02
    )
    assert cost.seconds(4) > 0
