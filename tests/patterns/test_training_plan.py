from __future__ import annotations

import time
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.algos import Algorithm, OffPolicyAlgorithm
from parllel.samplers import AsynchronousSampler, Plan
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.torch import PPO, SmallPolicyHandler, agent_for
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    PPO_DEFAULTS,
    TrainingPlan,
    build_cages,
    build_sampler,
    plan_training,
    training_plan,
)
from parllel_patterns.training_plan import BatchCosts, best_training

MS = 1e-3
HERE, WORKER = Plan(0, 16), Plan(1, 8)


def best(sampling, spread, learning, *, n_cores=2, max_staleness=1, ahead=None, cores=1.0):
    costs = BatchCosts(
        sampling * MS,
        spread * MS,
        (sampling if ahead is None else ahead) * MS,
        learning * MS,
        cores,
    )
    return best_training(costs, WORKER, HERE, n_cores, max_staleness)


@pytest.mark.parametrize(
    ("sampling", "spread", "learning", "overlapped"),
    [
        (12, 8, 8, True),  # 13 against 16
        (12, 7, 5, False),  # 13 against 12
        (8, 5, 12, True),  # 12 against 17
        (60, 35, 25, False),  # 61 against 60
        (12, 6.5, 7, False),  # 13 against 13.5 is no clear gain
        (0.5, 0.4, 1.0, False),  # handing over takes longer than sampling
    ],
)
def test_overlapping_pays_if_the_longer_half_is_shorter_than_both(
    sampling, spread, learning, overlapped
):
    found = best(sampling, spread, learning)
    assert found.overlapped == overlapped
    assert found.sampling == (HERE if overlapped else WORKER)


def test_predictions_by_hand():
    costs = BatchCosts(12 * MS, 8 * MS, 10 * MS, 7 * MS)
    assert costs.in_turn_s == pytest.approx(15 * MS)
    assert costs.overlapped_s(2) == pytest.approx(11 * MS)
    assert costs._replace(learning_s=14 * MS).overlapped_s(2) == pytest.approx(14 * MS)
    # Learning with two threads: 12 + 2 * 7 ms of work for two cores.
    assert costs._replace(learning_cores=2.0).overlapped_s(2) == pytest.approx(13 * MS)
    assert costs.overlapped_s(1) == pytest.approx(19 * MS)
    # Workers that do not help are not used.
    assert costs._replace(spread_s=20 * MS).in_turn_s == pytest.approx(19 * MS)


def test_one_core_and_an_algorithm_without_staleness_take_turns():
    assert best(12, 12, 12).overlapped
    assert not best(12, 12, 12, n_cores=1).overlapped
    found = best(12, 12, 12, max_staleness=0)
    assert not found.overlapped
    assert found.sampling == WORKER
    assert "which max_staleness=0 rules out" in found.why
    assert "rules out" not in best(12, 7, 5, max_staleness=0).why


def test_a_plan_says_what_it_is():
    assert str(best(12, 8, 8)) == (
        "overlapped, with batches one update old, all environments in the process that samples: a batch "
        "takes 12.0 ms to sample in one process and 8.0 ms to learn from, with 2 available cores; "
        "predicted 16.0 ms in turn, 13.0 ms overlapped"
    )
    assert str(TrainingPlan(False, WORKER)) == (
        "in turn, 1 worker and 8 environments in the process that samples: fixed by hand"
    )
    assert "in turn, 2 workers: " in str(TrainingPlan(False, Plan(2)))


# ---------------------------------------------------------------------- measured

make_env = partial(gym.make, "CartPole-v1")
SPEC = BatchSpec(16, 4)


def make_sampler(**options):
    cages = build_cages(make_env, SPEC.B, seeds=Seeds(0), **options)
    agent = agent_for(cages[0].spaces, seeds=Seeds(1))
    transforms = [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]
    return build_sampler(SPEC, cages, SmallPolicyHandler(agent), [], transforms)


def make_algorithm(agent):
    return PPO(agent, **PPO_DEFAULTS, seed=0)


def test_parts_are_measured_and_closed(monkeypatch):
    made = []

    def remembered():
        made.append(make_sampler())
        return made[-1]

    monkeypatch.setattr(training_plan, "HANDOVER_S", 0.0)
    found = plan_training(remembered, make_algorithm, make_env, max_staleness=1, n_cores=2)
    (sampler,) = made
    assert sampler._batches == 1 + training_plan.MAX_BATCHES
    with pytest.raises(Exception, match="close"):
        sampler.collect_batch(0)
    assert "ms to sample in one process" in found.why
    # Nothing of the measurement stays: the run itself begins as it would have without.
    with make_sampler() as first, make_sampler() as second:
        one, _ = first.collect_batch(0)
        two, _ = second.collect_batch(0)
        assert np.array_equal(np.asarray(one.env.observation), np.asarray(two.env.observation))


class SlowAlgorithm(Algorithm):
    """Learns for as long as it is told."""

    def __init__(self, seconds):
        self.seconds = seconds

    def optimize_agent(self, elapsed_steps, samples):
        time.sleep(self.seconds)
        return {}


class SlowEnv(CountingEnv):
    def step(self, action):
        time.sleep(0.001)
        return super().step(action)


def make_slow():
    cages = build_cages(partial(SlowEnv, 5), 2, seeds=Seeds(0))
    return build_sampler(BatchSpec(8, 2), cages, NumpyHandler(CountingAgent(4)))


@pytest.mark.parametrize(("learning_s", "overlapped"), [(0.030, True), (0.0, False)])
def test_the_plan_follows_the_costs(learning_s, overlapped):
    # A batch takes 16 ms to sample, 8 with a worker. So 30 ms against 38, or nothing to overlap with.
    found = plan_training(
        make_slow,
        lambda agent: SlowAlgorithm(learning_s),
        partial(SlowEnv, 5),
        max_staleness=1,
        n_cores=2,
    )
    assert found.overlapped == overlapped
    assert found.sampling.n_workers == (0 if overlapped else 1)


def test_what_is_chosen_can_be_built():
    torch.manual_seed(0)
    for plan in (TrainingPlan(True, Plan(0, SPEC.B)), TrainingPlan(False, Plan(1, 2))):
        make = partial(make_sampler, parallel=plan.sampling)
        with AsynchronousSampler(make) if plan.overlapped else make() as sampler:
            samples, _ = sampler.collect_batch(0)
            assert np.isfinite(np.asarray(samples.agent.advantage)).all()


class OffPolicy(OffPolicyAlgorithm):
    def optimize_agent(self, elapsed_steps, samples):
        return {}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"max_staleness": -1}, ValueError, r"max_staleness: expected 0 or more, got -1"),
        (
            {"make_sampler": lambda: None},
            TypeError,
            r"expected it to return a BatchSampler, got a None",
        ),
        (
            {"make_algorithm": lambda agent: 3},
            TypeError,
            r"expected it to return an Algorithm, got a int",
        ),
        (
            {"make_algorithm": lambda agent: OffPolicy()},
            TypeError,
            r"got OffPolicy, which learns from what a replay draws",
        ),
        (
            {"make_sampler": partial(make_sampler, parallel=Plan(1, 2))},
            ValueError,
            r"expected all environments in this process, got a SynchronizedProcessCage; build the cages "
            r"with parallel=False",
        ),
    ],
    ids=["staleness", "sampler", "algorithm", "off-policy", "workers"],
)
def test_what_cannot_be_measured_is_refused(arguments, error, message):
    given = {
        "make_sampler": make_sampler,
        "make_algorithm": make_algorithm,
        "env_factory": make_env,
        "max_staleness": 1,
        "n_cores": 2,
        **arguments,
    }
    with pytest.raises(error, match=message):
        plan_training(**given)
