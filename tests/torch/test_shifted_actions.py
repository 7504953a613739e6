"""Discrete spaces that do not start at 0."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from parllel import BatchSpec
from parllel.algos import TransformingAlgorithm
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.samplers import BasicSampler, EvalSampler, RecurrentSampler, RolloutSampler
from parllel.testing import CountingEnv
from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    EvaluatePolicy,
    MultiDiscrete,
    PgAgent,
    PgModel,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    SmallPolicyHandler,
    TorchHandler,
)
from parllel.torch.distributions.categorical import Categorical
from parllel.transforms import EstimateAdvantage, EstimateVtrace, FinalObservations
from parllel_patterns import PPO_DEFAULTS, allocate_eval_samples, allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SPACE = gym.spaces.Discrete(3, start=-4)
SPEC = BatchSpec(32, 4)


class Matching(gym.Env):
    """Reward the action that the observation asks for."""

    observation_space = gym.spaces.Box(0, 1, (3,), np.float32)
    action_space = SPACE

    def _observe(self):
        self.wanted = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.wanted]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(action - SPACE.start == self.wanted)
        return self._observe(), reward, False, False, {}


def agent(start=-4):
    return CategoricalPgAgent(
        PgModel((3,), CategoricalHead(3), (16,), seed=0), 3, start=start, seed=5
    )


def cages():
    return [VectorizedCage([Matching] * SPEC.B, seeds=range(SPEC.B))]


def test_an_agent_that_counts_from_zero_is_told_what_to_do():
    with cages()[0] as cage, pytest.raises(ValueError, match="give its distribution start=-4"):
        allocate_samples([cage], SPEC, TorchHandler(agent(start=0)))


def test_ppo_learns_to_match():
    learner = agent()
    handler = SmallPolicyHandler(learner)
    transforms = [EstimateAdvantage(0.0, 0.0)]
    places = cages()
    samples = allocate_samples(places, SPEC, handler, transforms)
    ppo = PPO(learner, **{**PPO_DEFAULTS, "learning_rate": 0.02}, seed=0)
    with BasicSampler(SPEC, places, handler, samples, (), transforms) as sampler:
        for update in range(15):
            samples, _ = sampler.collect_batch(0)
            diagnostics = ppo.optimize_agent(update * SPEC.size, samples)
        assert np.asarray(samples.env.reward).mean() > 0.8
        assert np.isfinite(diagnostics["policy_loss"])


def test_rollouts_and_evaluations_act_within_the_space():
    handler = SmallPolicyHandler(agent())
    options = {"n_workers": 1, "participate": True, "start_method": "fork"}
    cage = SynchronizedProcessCage([Matching] * SPEC.B, seeds=range(SPEC.B), **options)
    samples = allocate_samples([cage], SPEC, handler, noise=True)
    cage.set_policy(handler.worker_policy())
    with RolloutSampler(SPEC, [cage], handler, samples) as sampler:
        samples, _ = sampler.collect_batch(0)  # the environments see to it
        assert set(np.asarray(samples.agent.action).reshape(-1)) == {-4, -3, -2}
    factory = partial(CountingEnv, 2, action_space=SPACE)
    with VectorizedCage([factory], seeds=[0]) as cage:
        EvalSampler([cage], handler, allocate_eval_samples([cage]), 1).collect_batch(0)
        assert all(SPACE.contains(action) for action in cage.actions[0])


def test_previous_actions_count_from_zero():
    model = RecurrentPgModel(
        (3,),
        CategoricalHead(3),
        hidden_sizes=(8,),
        rnn_size=8,
        cell="gru",
        prev_action=True,
        seed=1,
    )
    for distribution in (Categorical(3, start=1), MultiDiscrete((3,), start=(1,))):
        with pytest.raises(
            ValueError, match=r"prev_action: expected actions that count from 0, .* got"
        ):
            RecurrentPgAgent(model, distribution, prev_action=0, seed=2)


@pytest.mark.parametrize(
    ("distribution", "n", "space"),
    [
        (Categorical(3, start=-4), 3, SPACE),
        (MultiDiscrete((2, 3), (5, 1)), 5, gym.spaces.MultiDiscrete([2, 3], start=[5, 1])),
    ],
    ids=["one", "several"],
)
@pytest.mark.parametrize("corrected", [False, True])
def test_cells_without_a_step_hold_no_action_of_the_space(distribution, n, space, corrected):
    model = RecurrentPgModel((3,), CategoricalHead(n), (8,), rnn_size=8, cell="gru", seed=1)
    learner = RecurrentPgAgent(model, distribution, seed=2)
    spec, transforms = BatchSpec(5, 2), [EstimateAdvantage(0.9, 0.9)]
    algorithm = RecurrentPPO(learner, **{**PPO_DEFAULTS, "minibatches": 2}, seed=0)
    if corrected:
        transforms = [FinalObservations()]
        corrections = [EvaluatePolicy(learner), EstimateVtrace(0.9)]
        algorithm = TransformingAlgorithm(algorithm, corrections)
    # The batch ends before its last row, so that there are cells in which nothing has acted at all.
    factories = [partial(CountingEnv, length, action_space=space) for length in (2, 4)]
    with VectorizedCage(factories, seeds=[0, 1], reset_automatically=False) as cage:
        handler = TorchHandler(learner)
        samples = allocate_samples([cage], spec, handler, transforms)
        sampler = RecurrentSampler(spec, [cage], handler, samples, (), transforms)
        for _ in range(2):
            batch, _ = sampler.collect_batch(0)
            assert np.count_nonzero(batch.env.valid) == 6
            assert np.isfinite(algorithm.optimize_agent(0, batch)["policy_loss"])


def test_multi_discrete_spaces_with_starts():
    space = gym.spaces.MultiDiscrete(np.array([2, 3]), start=np.array([5, -1]))
    distribution = MultiDiscrete(space.nvec, space.start)
    learner = PgAgent(PgModel((3,), CategoricalHead(5), (8,), seed=0), distribution, seed=5)
    factory = partial(CountingEnv, 2, action_space=space)
    with VectorizedCage([factory] * 2, seeds=[0, 1]) as cage:
        spec = BatchSpec(8, 2)
        samples = allocate_samples([cage], spec, TorchHandler(learner))
        BasicSampler(spec, [cage], TorchHandler(learner), samples).collect_batch(0)
        assert all(space.contains(action) for actions in cage.actions for action in actions)
    with torch.no_grad():
        assert torch.isfinite(learner.step(torch.zeros(1, 3))[1].log_prob).all()
