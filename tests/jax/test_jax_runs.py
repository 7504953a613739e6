"""Runs with PPO in JAX: resumed, in workers, in a sampling process, and loaded as policies."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from jax_setup import assert_equal, parameters

from parllel import BatchSpec, Seeds, load_policy
from parllel.agents import NumpyHandler
from parllel.cages import ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.jax import PPO, agent_for
from parllel.logging import CsvWriter, Logger
from parllel.runners import OnPolicyRunner, check_parts, checkpointing, train
from parllel.samplers import AsynchronousSampler
from parllel.testing.resume_contract import ResumeContract
from parllel.torch import PolicyModule, TorchHandler
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage, NormalizeObservations
from parllel_patterns import PPO_DEFAULTS, build_cages, build_eval_sampler, build_sampler

BATCH = BatchSpec(8, 2)
MAKE = partial(gym.make, "Pendulum-v1", max_episode_steps=11)
TRANSFORMS = (NormalizeObservations, partial(EstimateAdvantage, 0.9, 0.9), NormalizeAdvantage)


def sampler_of(cages, agent, **options):
    step, *batch = (make() for make in TRANSFORMS)
    return build_sampler(BATCH, cages, NumpyHandler(agent), [step], batch, **options)


def build(config, stack, folder, console=None, callbacks=(), logger=None):
    """Build a small run in the order of the data flow."""
    seeds = Seeds(3)
    cages = build_cages(MAKE, 2, seeds=seeds, stack=stack)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8, 8))
    sampler = sampler_of(cages, agent)
    stack.callback(sampler.close)
    eval_cages = build_cages(MAKE, 2, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        BATCH,
        sampler,
        PPO(agent, **PPO_DEFAULTS, seed=seeds.integer("algorithm")),
        n_steps=BATCH.size * 8,
        logger=logger or stack.enter_context(Logger([CsvWriter(folder.path)])),
        log_interval_steps=BATCH.size * 2,
        eval_sampler=build_eval_sampler(eval_cages, sampler, 2),
        folder=folder,
        seeds=seeds,
        console=console,
        callbacks=callbacks,
        checkpoint_interval_s=0.0,
    )


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    # They take longer than all batches, and are no part of what is compared.
    monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)


class TestResuming(ResumeContract):
    def make_runner(self, stack, folder, callbacks):
        return build(None, stack, folder, None, callbacks, self.make_logger(folder))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of a run, without its script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)
        _, folder = train(build, {}, base=tmp_path_factory.mktemp("runs"), name="run")
    return folder


def test_a_run_is_loaded_as_a_policy(trained):
    policy = load_policy(trained.path, build=build)
    with policy:
        assert policy.elapsed_steps == BATCH.size * 8
        observation = np.array([[0.5, 0.5, 1.0]] * 3, np.float32)
        action = policy.act(observation, [0, 1, 2])
        seen = policy.as_seen(observation)
        # The mean of the policy, clipped to the bounds.
        mean = np.asarray(policy.model(seen).params.mean)
        np.testing.assert_allclose(action, np.clip(mean, -2, 2), rtol=1e-6)
        _, state = trained.checkpoints.load_newest()
        assert_equal(parameters(policy.handler.agent), state["parts"]["agent"]["model"])


@pytest.mark.parametrize("cage_class", [ProcessCage, SynchronizedProcessCage])
def test_samples_and_updates_do_not_depend_on_where_environments_are(cage_class):
    found = []
    for kind in (VectorizedCage, cage_class):
        seeds = Seeds(1)
        sequences = seeds.spawn("environments", BATCH.B)
        if kind is ProcessCage:
            cages = [ProcessCage(MAKE, seed=sequence) for sequence in sequences]
        else:
            options = {"n_workers": 2} if kind is SynchronizedProcessCage else {}
            cages = [kind([MAKE] * BATCH.B, seeds=sequences, **options)]
        agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8, 8))
        algorithm = PPO(agent, **PPO_DEFAULTS, seed=0)
        batches = []
        with sampler_of(cages, agent) as sampler:
            for i in range(2):
                samples, _ = sampler.collect_batch(i * BATCH.size)
                fields = (samples.env.observation, samples.agent.action, samples.agent.return_)
                batches += [np.array(field) for field in fields]
                algorithm.optimize_agent((i + 1) * BATCH.size, samples)
        found.append((batches, parameters(agent)))
    (mine, my_weights), (others, their_weights) = found
    for one, other in zip(mine, others, strict=True):
        np.testing.assert_array_equal(one, other)
    assert_equal(my_weights, their_weights)


def small_agent(seed):
    with VectorizedCage([MAKE], seeds=[0]) as cage:
        return agent_for(cage.spaces, seeds=Seeds(seed), hidden_sizes=(8,))


def sample_elsewhere():
    seeds = Seeds(5)
    cages = build_cages(MAKE, BATCH.B, seeds=seeds)
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8,))
    return sampler_of(cages, agent, switching=True)


def test_a_sampling_process_gets_the_weights():
    agent = small_agent(2)
    algorithm = PPO(agent, **PPO_DEFAULTS, seed=0)
    with AsynchronousSampler(sample_elsewhere, agent=agent) as sampler:
        for i in range(3):
            samples, _ = sampler.collect_batch(i * BATCH.size)
            algorithm.optimize_agent((i + 1) * BATCH.size, samples)
            sampler.publish()
        # The first batches were begun before the last update.
        for i in range(3, 6):
            samples, _ = sampler.collect_batch(i * BATCH.size)
        seen = np.array(samples.agent.observation)[: BATCH.T]
        values = np.array([agent.value(row) for row in seen])
        np.testing.assert_allclose(
            np.array(samples.agent.agent_info.value)[: BATCH.T], values, rtol=1e-5, atol=1e-6
        )


def test_an_algorithm_for_another_agent_is_refused():
    cages = build_cages(MAKE, BATCH.B, seeds=Seeds(0))
    # Of the same form, so that both share their compiled functions.
    agent, other = (agent_for(cages[0].spaces, seeds=Seeds(i)) for i in range(2))
    with sampler_of(cages, agent) as sampler:
        check_parts(BATCH, sampler, PPO(agent, **PPO_DEFAULTS, seed=0))
        with pytest.raises(ValueError, match=r"PPO trains a PgAgent, but .* another PgAgent"):
            check_parts(BATCH, sampler, PPO(other, **PPO_DEFAULTS, seed=0))


def test_the_handler_for_pytorch_names_the_right_one():
    cages = build_cages(MAKE, BATCH.B, seeds=Seeds(0))
    agent = agent_for(cages[0].spaces, seeds=Seeds(0))
    with pytest.raises(
        TypeError, match=r"got a torch\.Tensor\. Use NumpyHandler instead of TorchHandler"
    ):
        build_sampler(BATCH, cages, TorchHandler(agent))
    for cage in cages:
        cage.close()


def test_a_policy_in_jax_is_not_exported(trained):
    said = (
        r"^export: expected one agent of parllel\.torch, .* got a parllel\.jax\.pg_agent\.PgAgent"
    )
    with load_policy(trained.path, build=build) as policy, pytest.raises(TypeError, match=said):
        PolicyModule(policy)
