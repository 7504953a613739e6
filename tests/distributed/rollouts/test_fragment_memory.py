"""Values that workers of an agent with a memory cannot know are estimated by the learner."""

from __future__ import annotations

import numpy as np
from producers import MAKE_ENV, SPEC

from parllel import Seeds
from parllel.algos import TransformingAlgorithm
from parllel.distributed.rollouts import FragmentCutter, FragmentSampler, ReplayBuffer
from parllel.torch import (
    Categorical,
    CategoricalHead,
    EvaluatePolicy,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    TorchHandler,
)
from parllel.transforms import EstimateVtrace, FinalObservations, ImportanceWeights
from parllel_patterns import PPO_DEFAULTS, allocate_samples, build_cages, build_sampler


class Keeping(RecurrentPPO):
    def optimize_agent(self, elapsed_steps, samples):
        agent = samples.agent
        self.seen = {
            name: np.array(getattr(agent, name))
            for name in ("advantage", "return_", "learner_value", "importance_weight")
        }
        return super().optimize_agent(elapsed_steps, samples)


def make_learner(seed=0):
    model = RecurrentPgModel((4,), CategoricalHead(2), (8,), 5, cell="gru", seed=seed)
    agent = RecurrentPgAgent(model, Categorical(2), seed=1)
    settings = {**PPO_DEFAULTS, "minibatches": 2, "learning_rate": 1e-2}
    corrections = [EvaluatePolicy(agent), EstimateVtrace(0.9), ImportanceWeights()]
    return agent, TransformingAlgorithm(Keeping(agent, **settings, seed=0), corrections)


def test_fragments_teach_an_agent_with_a_memory_what_batches_teach_it():
    acting, first = make_learner()
    agent, second = make_learner()
    cages = build_cages(MAKE_ENV, SPEC.B, seeds=Seeds(0), reset_automatically=False)
    handler, transforms = TorchHandler(agent), [FinalObservations()]
    samples = allocate_samples(cages, SPEC, handler, transforms)
    source = build_sampler(SPEC, cages, TorchHandler(acting), [], transforms)
    cutter, buffer = FragmentCutter(SPEC.T, recurrent=True), ReplayBuffer(8)
    ends = 0
    with source, FragmentSampler(SPEC, buffer, handler, samples, (), transforms) as sampler:
        for _ in range(4):
            batch, _ = source.collect_batch(0)
            ends += np.count_nonzero(batch.env.truncated)
            buffer.add(cutter.add_batch(batch, 0), 0)
            ours, _ = sampler.collect_batch(0)
            first.optimize_agent(0, batch)
            second.optimize_agent(0, ours)
            valid = np.asarray(batch.env.valid)
            for name, expected in first.algorithm.seen.items():
                found = second.algorithm.seen[name]
                np.testing.assert_array_equal(found[valid], expected[valid], err_msg=name)
            assert first.algorithm.seen["advantage"][valid].any()
    for path, one in acting.state()["model"].items():
        np.testing.assert_array_equal(one, agent.state()["model"][path], err_msg=path)
    assert ends > 0
