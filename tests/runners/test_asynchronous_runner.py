from __future__ import annotations

import json
from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
import torch

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm, TransformingAlgorithm
from parllel.logging import Logger, Writer
from parllel.runners import AsynchronousRunner
from parllel.runs import RunFolder
from parllel.samplers import AsynchronousSampler, BasicSampler, EvalSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_setup import SamplerSetup
from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    EvaluatePolicy,
    PgModel,
    TorchHandler,
)
from parllel.transforms import (
    EstimateAdvantage,
    EstimateVtrace,
    FinalObservations,
    ImportanceWeights,
    NormalizeAdvantage,
    NormalizeObservations,
)
from parllel_patterns import PPO_DEFAULTS, allocate_eval_samples, allocate_samples, build_cages

SPEC = BatchSpec(32, 4)


class Rows(Writer):
    def __init__(self):
        self.rows = {}

    def write(self, step, values):
        self.rows[step] = dict(values)

    def message(self, level, text):
        assert level == "notice", text

    def close(self):
        pass


def make_agent(seed=1):
    return CategoricalPgAgent(PgModel((4,), CategoricalHead(2), (16, 16), seed=seed), 2, seed=2)


def build(switching, batch=()):
    torch.set_num_threads(1)
    cages = build_cages(partial(gym.make, "CartPole-v1"), SPEC.B, seeds=Seeds(0))
    handler = TorchHandler(make_agent(seed=5))
    step = [NormalizeObservations()]
    batch = list(batch) or [EstimateAdvantage(0.98, 0.9), NormalizeAdvantage()]
    samples = allocate_samples(cages, SPEC, handler, [*step, *batch], switching=switching)
    return BasicSampler(SPEC, cages, handler, samples, step, batch)


class Remembering(PPO):
    """Keep the weights of each version, and compare what the batch says with what they say."""

    def __init__(self, agent, sampler, **settings):
        super().__init__(agent, **settings)
        self.sampler = sampler
        self.weights = {0: agent.state()["model"]}
        self.staleness = []

    def optimize_agent(self, elapsed_steps, samples):
        version = self.sampler.version_of_batch
        assert len(self.weights) == self.sampler.version + 1
        self.staleness.append(self.sampler.version - version)
        self.check_log_prob(self.weights[version], self.construct_agent_inputs(samples))
        diagnostics = super().optimize_agent(elapsed_steps, samples)
        self.weights[len(self.weights)] = self.agent.state()["model"]
        return diagnostics

    def check_log_prob(self, weights, inputs):
        sampled_by = make_agent()
        sampled_by.load_state({**sampled_by.state(), "model": weights})
        with torch.no_grad():
            log_prob, _, value = sampled_by.evaluate(action=inputs.action, **inputs.agent)
        torch.testing.assert_close(inputs.log_prob, log_prob, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(inputs.value, value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("switching", "max_staleness", "expected"),
    [(False, 1, [0, 1, 1, 1, 1, 1]), (True, 1, [0, 1, 1, 1, 1, 1]), (True, 0, [0] * 6)],
)
@pytest.mark.few(1)
def test_ppo_learns_from_batches_of_known_age(switching, max_staleness, expected, tmp_path):
    agent, rows = make_agent(), Rows()
    folder = RunFolder(tmp_path, "run")
    with AsynchronousSampler(
        partial(build, switching), agent=agent, max_staleness=max_staleness
    ) as sampler:
        settings = {**PPO_DEFAULTS, "learning_rate": 3e-3}
        algorithm = Remembering(agent, sampler, **settings, seed=3)
        runner = AsynchronousRunner(
            SPEC,
            sampler,
            algorithm,
            n_steps=6 * SPEC.size,
            logger=Logger([rows]),
            log_interval_steps=3 * SPEC.size,
            state_parts={"agent": agent},
            folder=folder,
        )
        result = runner.run()
        assert sampler.version == 6
    assert result.elapsed_steps == 6 * SPEC.size
    assert algorithm.staleness == expected
    assert list(rows.rows) == [3 * SPEC.size, 6 * SPEC.size]
    first, second = rows.rows.values()
    assert first["asynchronous/staleness/count"] == second["asynchronous/staleness/count"] == 3
    assert first["asynchronous/staleness/mean"] == np.mean(expected[:3])
    assert second["asynchronous/staleness/mean"] == np.mean(expected[3:])
    assert second["sampler/staleness"] == expected[-1]
    assert 0 <= second["asynchronous/waited_s"] <= second["time/sampling_s"]
    assert second["training/length/count"] > 0
    weights = [np.concatenate([a.ravel() for a in w.values()]) for w in algorithm.weights.values()]
    assert all((one != other).any() for one, other in pairwise(weights))
    allocators = json.loads((folder.path / "allocators.json").read_text())
    assert allocators["env.observation"]["shape"] == [SPEC.T, SPEC.B, 4]
    assert allocators["env.observation"]["storage"] != "local"
    # The statistics of the normaliser, which lives in the other process, are in the checkpoint.
    _, state = folder.checkpoints.load_newest()
    (normaliser, *_) = state["parts"]["sampler"]["sampler"]["transforms"]
    assert normaliser["env.observation"]["count"] == 6 * SPEC.size


class Comparing(PPO):
    """Compare what both policies say of the batch, with what its fields say of them."""

    def optimize_agent(self, elapsed_steps, samples):
        agent = samples.agent
        inputs = {
            "observation": torch.from_numpy(np.asarray(agent.observation).reshape(-1, 4)),
            "action": torch.from_numpy(np.asarray(agent.action).reshape(-1)),
        }
        with torch.no_grad():
            log_prob, _, value = (x.reshape(SPEC.shape) for x in self.agent.evaluate(**inputs))
        np.testing.assert_allclose(np.asarray(agent.learner_log_prob), log_prob, atol=1e-5)
        np.testing.assert_allclose(np.asarray(agent.learner_value), value, atol=1e-5)
        ratio = np.exp(log_prob.numpy() - np.asarray(agent.agent_info.log_prob))
        np.testing.assert_allclose(
            np.asarray(agent.importance_weight), np.minimum(ratio, 1.0), atol=1e-5
        )
        assert abs(np.asarray(agent.advantage).mean()) < 1e-5
        self.ratios = [*getattr(self, "ratios", []), abs(ratio - 1).max()]
        return super().optimize_agent(elapsed_steps, samples)


@pytest.mark.parametrize("switching", [False, True])
@pytest.mark.few(1)
def test_old_batches_are_corrected_for_the_weights_of_now(switching, tmp_path):
    agent, rows = make_agent(), Rows()
    make = partial(build, switching, [FinalObservations()])
    folder = RunFolder(tmp_path, "run")
    with AsynchronousSampler(make, agent=agent) as sampler:
        comparing = Comparing(agent, **{**PPO_DEFAULTS, "learning_rate": 3e-3}, seed=3)
        corrections = [
            EvaluatePolicy(agent),
            EstimateVtrace(0.98, gae_lambda=0.9),
            ImportanceWeights(),
            NormalizeAdvantage(),
        ]
        runner = AsynchronousRunner(
            SPEC,
            sampler,
            TransformingAlgorithm(comparing, corrections),
            n_steps=5 * SPEC.size,
            logger=Logger([rows]),
            log_interval_steps=SPEC.size,
            folder=folder,
        )
        runner.run()
    first, *others = comparing.ratios
    assert first < 1e-4
    assert min(others) > 1e-3
    first, *others = (row["algorithm/ImportanceWeights/weight"] for row in rows.rows.values())
    assert first == pytest.approx(1, abs=1e-4)
    assert len(others) == 4
    assert max(others) < 1
    _, state = folder.checkpoints.load_newest()
    again = make_agent(seed=9)
    algorithm = TransformingAlgorithm(
        PPO(again, **PPO_DEFAULTS, seed=4), [EvaluatePolicy(again), *corrections[1:]]
    )
    algorithm.load_state(state["parts"]["algorithm"])
    assert state["parts"]["agent"]["model"]
    with pytest.raises(ValueError, match=r"expected the states of \['EvaluatePolicy'\], got those"):
        TransformingAlgorithm(comparing, corrections[:1]).load_state(algorithm.state())
    with pytest.raises(ValueError, match=r"expected the states of .* got those of None"):
        algorithm.load_state(comparing.state())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((None, []), "algorithm: expected an Algorithm, got None"),
        ((PPO, []), "algorithm: expected an Algorithm, got <class"),
        (
            (Algorithm, [NormalizeObservations()]),
            "transforms: expected BatchTransforms, got NormalizeObservations$",
        ),
        ((Algorithm, [NormalizeAdvantage]), "transforms: .*NormalizeAdvantage'>; call it"),
        (
            (Algorithm, NormalizeAdvantage()),
            "transforms: expected a list of BatchTransforms, got NormalizeAdvantage$",
        ),
    ],
)
def test_a_learners_transforms_are_batch_transforms(arguments, match):
    algorithm, transforms = arguments
    if algorithm is Algorithm:
        algorithm = PPO(make_agent(), **PPO_DEFAULTS, seed=3)
    with pytest.raises(TypeError, match=match):
        TransformingAlgorithm(algorithm, transforms)


def test_weights_of_a_checkpoint_count_from_the_first_batch_on():
    agent, rows = make_agent(), Rows()
    loaded = make_agent(seed=9).state()["model"]
    with AsynchronousSampler(partial(build, False), agent=agent) as sampler:
        algorithm = Remembering(agent, sampler, **PPO_DEFAULTS, seed=3)
        algorithm.weights[1] = loaded
        arguments = {"n_steps": 1, "log_interval_steps": 1, "logger": Logger([rows])}
        runner = AsynchronousRunner(SPEC, sampler, algorithm, **arguments)
        agent.load_state({**agent.state(), "model": loaded})
        runner.run()
    assert algorithm.staleness == [0]
    assert rows.rows[SPEC.size]["sampler/version_of_batch"] == 1


def test_evaluations_show_the_agent_what_it_sees_in_the_other_process():
    agent = make_agent()
    eval_cages = build_cages(partial(gym.make, "CartPole-v1"), 1, seeds=Seeds(1))
    with (
        EvalSampler(eval_cages, TorchHandler(agent), allocate_eval_samples(eval_cages), 1) as other,
        AsynchronousSampler(partial(build, False), agent=agent) as sampler,
    ):
        arguments = {"n_steps": 1, "log_interval_steps": 1, "logger": Logger([Rows()])}
        algorithm = PPO(agent, **PPO_DEFAULTS, seed=3)
        runner = AsynchronousRunner(SPEC, sampler, algorithm, eval_sampler=other, **arguments)
        message = r"writes agent\.observation in training, NormalizeObservations, got \[\]"
        with pytest.raises(ValueError, match=message):
            runner.run()


def test_other_samplers_are_refused():
    parts = SamplerSetup(2, (CountingEnv,)).build()
    with (
        BasicSampler(parts.batch_spec, parts.cages, parts.handler, parts.samples) as sampler,
        pytest.raises(TypeError, match=r"expected a sampler that publishes .* got BasicSampler"),
    ):
        AsynchronousRunner(
            parts.batch_spec, sampler, None, n_steps=1, logger=Logger([]), log_interval_steps=1
        )


@pytest.mark.parametrize("given", [None, make_agent()], ids=["none", "another"])
@pytest.mark.few(1)
def test_a_sampler_that_follows_another_agent_is_refused(given):
    with AsynchronousSampler(partial(build, False), agent=given) as sampler:
        algorithm = PPO(make_agent(), **PPO_DEFAULTS, seed=3)
        with pytest.raises(
            ValueError, match="sampler: expected a sampler with the agent of the algorithm"
        ):
            AsynchronousRunner(
                SPEC, sampler, algorithm, n_steps=1, log_interval_steps=1, logger=Logger([])
            )
