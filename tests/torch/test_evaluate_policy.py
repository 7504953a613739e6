"""What the learner's weights say of a batch: with the weights that sampled it, what the sampler wrote."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from ppo_setup import perturb

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm, TransformingAlgorithm
from parllel.cages import VectorizedCage
from parllel.testing.dummy_envs import CountingEnv
from parllel.torch import (
    CategoricalHead,
    CategoricalPgAgent,
    EnsembleAgent,
    EvaluatePolicy,
    GaussianHead,
    GaussianPgAgent,
    PgModel,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    TorchHandler,
)
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.gaussian import Gaussian
from parllel.torch.models.shared_model import SharedModel
from parllel.transforms import (
    EstimateAdvantage,
    EstimateVtrace,
    FinalObservations,
    ImportanceWeights,
    NormalizeObservations,
)
from parllel_patterns import PPO_DEFAULTS, build_cages, build_sampler

SPEC = BatchSpec(9, 3)


class Keeping(Algorithm):
    """Learn nothing, and keep the batch."""

    def optimize_agent(self, elapsed_steps, samples):
        self.samples = samples
        return {}


class SmallEnv(CountingEnv):
    """Numbers below one, which do not saturate a network."""

    def __init__(self, action_space, lengths):
        super().__init__(lengths, end="alternate", action_space=action_space)
        self.observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)

    def _observation(self):
        rng = np.random.default_rng([self._mark, self._episode, self._step])
        return rng.uniform(-1, 1, 3).astype(np.float32)


def steps_discrete():
    return CategoricalPgAgent(PgModel((3,), CategoricalHead(4), (8,), seed=0), 4, seed=1)


def steps_continuous():
    return GaussianPgAgent(PgModel((3,), GaussianHead((2,), -0.5), (8,), seed=0), (2,), seed=1)


def memory_discrete(prev_action=True):
    model = RecurrentPgModel(
        (3,), CategoricalHead(4), (6,), 5, cell="lstm", prev_action=prev_action, seed=0
    )
    return RecurrentPgAgent(model, Categorical(4), prev_action=0 if prev_action else None, seed=1)


def memory_continuous():
    model = RecurrentPgModel(
        (3,),
        GaussianHead((2,), initial_log_std=-0.5),
        (6,),
        5,
        cell="gru",
        prev_action=True,
        seed=0,
    )
    return RecurrentPgAgent(model, Gaussian((2,)), prev_action=np.zeros(2, np.float32), seed=1)


AGENTS = {
    "discrete": steps_discrete,
    "continuous": steps_continuous,
    "memory": memory_discrete,
    "memory, no previous action": partial(memory_discrete, prev_action=False),
    "memory, continuous": memory_continuous,
}


def make_sampler(agent, step_transforms=()):
    continuous = isinstance(agent.distribution, Gaussian)
    action_space = gym.spaces.Box(-9, 9, (2,)) if continuous else gym.spaces.Discrete(4)
    # One episode ends with the batch, others within it, and some go on in the next.
    factories = [partial(SmallEnv, action_space, n) for n in ((2, 9, 4), (9, 3), (20, 1, 5))]
    cage = VectorizedCage(factories, seeds=range(3), reset_automatically=not agent.recurrent)
    transforms = [EstimateAdvantage(0.9, 0.8), FinalObservations()]
    return build_sampler(SPEC, [cage], TorchHandler(agent), step_transforms, transforms)


def body(field):
    return np.asarray(field)


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("name", AGENTS)
def test_the_weights_that_sampled_say_what_the_sampler_wrote(name, normalised):
    agent = AGENTS[name]()
    algorithm = TransformingAlgorithm(Keeping(), [EvaluatePolicy(agent)])
    cuts = 0
    with make_sampler(agent, [NormalizeObservations()] if normalised else []) as sampler:
        for _ in range(6):
            samples, _ = sampler.collect_batch(0)
            algorithm.optimize_agent(0, samples)
            found, info = algorithm.algorithm.samples.agent, samples.agent.agent_info
            valid = np.ones(SPEC.shape, bool)
            if agent.recurrent:
                valid = body(samples.env.valid)
            for mine, theirs in (
                (found.learner_log_prob, info.log_prob),
                (found.learner_value, info.value),
            ):
                np.testing.assert_allclose(
                    body(mine)[valid], body(theirs)[valid], rtol=1e-5, atol=1e-6
                )
            cut = body(samples.env.truncated) & ~body(samples.env.terminated)
            cuts += np.count_nonzero(cut)
            np.testing.assert_allclose(
                body(found.learner_final_value),
                body(samples.agent.final_value),
                rtol=1e-5,
                atol=1e-6,
            )
            goes_on = valid[-1] & ~body(samples.env.done)[-1]
            np.testing.assert_allclose(
                body(found.learner_value[SPEC.T])[goes_on],
                body(info.value[SPEC.T])[goes_on],
                rtol=1e-5,
                atol=1e-6,
            )
    assert cuts >= 4


def test_other_weights_say_what_they_say_of_each_row():
    agent = steps_discrete()
    evaluate = EvaluatePolicy(agent)
    algorithm = TransformingAlgorithm(Keeping(), [evaluate])
    with make_sampler(agent) as sampler:
        for _ in range(2):
            samples, _ = sampler.collect_batch(0)
        perturb(agent, 0.5)
        algorithm.optimize_agent(0, samples)
        found = algorithm.algorithm.samples.agent
        info = samples.agent.agent_info
        assert (body(found.learner_value) != body(info.value)).all()
        for t in range(SPEC.T + 1):
            seen = torch.from_numpy(body(samples.agent.observation[t]).copy())
            np.testing.assert_allclose(
                body(found.learner_value[t]), agent.value(seen), rtol=1e-5, atol=1e-6
            )
            if t < SPEC.T:
                logits = agent.model(seen)[0].log_softmax(-1).detach().numpy()
                expected = logits[range(3), body(samples.agent.action)[t]]
                np.testing.assert_allclose(
                    body(found.learner_log_prob)[t], expected, rtol=1e-5, atol=1e-6
                )
        rows, columns = np.nonzero(body(samples.env.truncated))
        assert len(rows)
        final = torch.from_numpy(body(samples.agent.final_observation)[rows, columns])
        np.testing.assert_allclose(
            body(found.learner_final_value)[rows, columns], agent.value(final), rtol=1e-5
        )
        assert not any(p.grad is not None for p in agent.model.parameters())


class WithColumn(torch.nn.Module):
    """See the number of the environment as well."""

    def __init__(self):
        super().__init__()
        self.model = PgModel((4,), CategoricalHead(4), (8,), seed=0)

    def forward(self, observation, column):
        return self.model(torch.cat((observation, column.unsqueeze(-1)), -1))


def test_further_inputs_are_those_of_each_cell():
    class Handler(TorchHandler):
        def agent_inputs(self, observation, rows, columns):
            return {"observation": observation, "column": torch.arange(3.0)[columns]}

    class Evaluate(EvaluatePolicy):
        agent_inputs = Handler.agent_inputs

    agent = CategoricalPgAgent(WithColumn(), 4, seed=1)
    factories = [partial(SmallEnv, gym.spaces.Discrete(4), n) for n in ((2, 9), (4, 3), (5, 1))]
    cage = VectorizedCage(factories, seeds=range(3))
    transforms = [EstimateAdvantage(0.9, 0.8), FinalObservations()]
    algorithm = TransformingAlgorithm(Keeping(), [Evaluate(agent)])
    with build_sampler(SPEC, [cage], Handler(agent), [], transforms) as sampler:
        samples, _ = sampler.collect_batch(0)
        algorithm.optimize_agent(0, samples)
    found = algorithm.algorithm.samples.agent
    np.testing.assert_allclose(
        body(found.learner_value), body(samples.agent.agent_info.value), rtol=1e-5, atol=1e-6
    )
    assert body(samples.agent.final_value).any()
    np.testing.assert_allclose(
        body(found.learner_final_value), body(samples.agent.final_value), rtol=1e-5, atol=1e-6
    )


class Brief(torch.nn.Module):
    """Compute in bfloat16, of which numpy knows nothing."""

    def __init__(self):
        super().__init__()
        self.model = PgModel((3,), CategoricalHead(4), (8,), seed=0).to(torch.bfloat16)

    def forward(self, observation):
        return self.model(observation.to(torch.bfloat16))


def test_what_is_computed_in_bfloat16_is_stored_in_float32():
    agent = CategoricalPgAgent(Brief(), 4, seed=1)
    algorithm = TransformingAlgorithm(Keeping(), [EvaluatePolicy(agent)])
    with make_sampler(agent) as sampler:
        samples, _ = sampler.collect_batch(0)
        algorithm.optimize_agent(0, samples)
    found, info = algorithm.algorithm.samples.agent, samples.agent.agent_info
    assert body(info.value).dtype == np.float32
    np.testing.assert_allclose(body(found.learner_value), body(info.value), atol=0.02)
    np.testing.assert_allclose(body(found.learner_log_prob), body(info.log_prob), atol=0.02)


def test_ppo_with_a_memory_learns_from_corrected_batches():
    agent = memory_discrete()
    settings = {**PPO_DEFAULTS, "minibatches": 3, "learning_rate": 1e-2}
    algorithm = TransformingAlgorithm(
        RecurrentPPO(agent, **settings, seed=0),
        [EvaluatePolicy(agent), EstimateVtrace(0.9), ImportanceWeights()],
    )
    factories = [partial(SmallEnv, gym.spaces.Discrete(4), n) for n in ((2, 9), (4, 3), (5, 1))]
    cage = VectorizedCage(factories, seeds=range(3), reset_automatically=False)
    with build_sampler(SPEC, [cage], TorchHandler(agent), [], [FinalObservations()]) as sampler:
        samples, _ = sampler.collect_batch(0)
        first = algorithm.optimize_agent(0, samples)
        second = algorithm.optimize_agent(0, samples)
    # The weights that sampled, then those of one update later.
    assert first["ImportanceWeights/weight"] == pytest.approx(1.0, abs=1e-5)
    assert second["ImportanceWeights/weight"] < 0.999
    assert np.isfinite(list(second.values())).all()


def test_a_batch_without_final_observations_is_refused():
    agent = steps_discrete()
    cages = build_cages(partial(SmallEnv, gym.spaces.Discrete(4), 3), 3, seeds=Seeds(0))
    algorithm = TransformingAlgorithm(Keeping(), [EvaluatePolicy(agent)])
    with build_sampler(SPEC, cages, TorchHandler(agent)) as sampler:
        samples, _ = sampler.collect_batch(0)
        said = (
            r"^EvaluatePolicy needs the field agent\.final_obs.* the sampler FinalObservations\(\)"
        )
        with pytest.raises(ValueError, match=said):
            algorithm.optimize_agent(0, samples)


def test_several_agents_are_refused():
    model = SharedModel(PgModel((3,), CategoricalHead(2), (4,), seed=0), ("fox",), one_hot=False)
    agent = EnsembleAgent(model, {"fox": Categorical(2)}, seed=0)
    with pytest.raises(TypeError, match=r"agent: expected one PgAgent of .*EnsembleAgent. Several"):
        EvaluatePolicy(agent)
