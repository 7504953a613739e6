"""Policies of PyTorch agents that act in the processes of the environments."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from start_methods import SENT_SPAWN_SOAKS

from parllel import BatchSpec, Seeds
from parllel.agents.shared_parameters import SharedParameters
from parllel.agents.small_policy import SmallPolicy
from parllel.agents.small_worker_policy import SmallWorkerPolicy
from parllel.buffers import buffer_leaves
from parllel.cages import SynchronizedProcessCage, TrajInfo, VectorizedCage
from parllel.errors import WrongStateError
from parllel.samplers import BasicSampler, Plan, RolloutSampler
from parllel.system.processes import fork_server
from parllel.testing import CountingEnv
from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    GaussianPgAgent,
    MultiDiscrete,
    PgAgent,
    PgModel,
    SmallPolicyHandler,
    TorchHandler,
)
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import PPO_DEFAULTS, allocate_samples, build_cages

T, B = 7, 6


def shake(agent, seed, scale=0.2):
    """Move the parameters as an update would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in agent.model.parameters():
            p.add_(scale * torch.randn(p.shape, generator=generator))


def categorical(hidden=(16, 16)):
    return CategoricalPgAgent(PgModel((3,), CategoricalHead(4), hidden, seed=0), 4, seed=5)


def multi_discrete():
    return PgAgent(PgModel((3,), CategoricalHead(5), (8,), seed=0), MultiDiscrete((2, 3)), seed=5)


def gaussian():
    model = PgModel((3,), GaussianHead((2,), initial_log_std=-0.5), (8,), seed=0)
    return GaussianPgAgent(model, (2,), seed=5)


class PlainEnv(gym.ObservationWrapper):
    """A CountingEnv with observations of the size that networks are made for."""

    def __init__(self, action_space, length):
        super().__init__(CountingEnv((length, 3), action_space=action_space, end="alternate"))

    def observation(self, observation):
        return (observation / np.array([2**20, 8, 4])).astype(np.float32)


SPACES = {
    categorical: gym.spaces.Discrete(4),
    multi_discrete: gym.spaces.MultiDiscrete([2, 3]),
    gaussian: gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
}


@contextmanager
def sampling(handler, make_agent, *, rollouts, rows=T, n=B, **cage_options):
    """Build a sampler as a script would; in this process, unless it is one of rollouts."""
    factories = [partial(PlainEnv, SPACES[make_agent], 2 + i) for i in range(n)]
    common = {"seeds": range(n), "traj_info": TrajInfo}
    if rollouts:
        cage = SynchronizedProcessCage(factories, start_method="fork", **common, **cage_options)
    else:
        cage = VectorizedCage(factories, **common)
    with cage:
        spec = BatchSpec(rows, n)
        transforms = [EstimateAdvantage(0.9, 0.8)]
        samples = allocate_samples(
            [cage],
            spec,
            handler,
            transforms,
            noise=rollouts,
            next_observation=True,
            # So that policies in workers go from batch to batch of a buffer, and back to the first.
            n_batches=3 if rollouts else 1,
        )
        if rollouts:
            cage.set_policy(handler.worker_policy())
        cls = RolloutSampler if rollouts else BasicSampler
        with cls(spec, [cage], handler, samples, batch_transforms=transforms) as sampler:
            yield sampler


def fields(samples):
    return {path: np.array(leaf) for path, leaf in buffer_leaves(samples) if path != "agent.noise"}


def lengths(trajectories):
    return [(traj.length, traj.return_) for traj in trajectories]


def compare(theirs, ours, compare_fields, batches=4, update=True):
    """Sample in turn, with updates of both agents in between."""
    for k in range(batches):
        expected, expected_trajs = theirs.collect_batch(k * T * B)
        found, found_trajs = ours.collect_batch(k * T * B)
        compare_fields(fields(expected), fields(found))
        assert lengths(found_trajs) == lengths(expected_trajs)
        behind = [
            np.asarray(s.agent.agent_info.value[s.env.reward.last + 1]) for s in (expected, found)
        ]
        np.testing.assert_allclose(behind[1], behind[0], rtol=1e-5, atol=1e-5)
        if update:
            for sampler in (theirs, ours):
                shake(sampler.handler.agent, k)


def identical(expected, found):
    assert expected.keys() == found.keys()
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


def close(expected, found):
    for path, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[path], array, rtol=1e-4, atol=1e-5, err_msg=path)
        else:
            np.testing.assert_array_equal(found[path], array, err_msg=path)


PLACES = {
    "1": {"n_workers": 1},
    "2": {"n_workers": 2},
    "3 in groups": {"n_workers": 3, "n_groups": 2},
    "1 and main": {"n_workers": 1, "participate": True},
    "2 and main": {"n_workers": 2, "participate": True},
    "2 and main in groups": {"n_workers": 2, "participate": True, "n_groups": 3},
}


# Each place with one distribution, each distribution with the most and the fewest shares.
PAIRS = [
    *((categorical, name) for name in PLACES),
    *(
        (make, name)
        for make in (multi_discrete, gaussian)
        for name in ("1", "2 and main in groups")
    ),
]


@pytest.mark.parametrize(("make", "name"), PAIRS)
@pytest.mark.few(4)
def test_rollouts_are_bit_for_bit_those_of_main(make, name):
    place = PLACES[name]
    with (
        sampling(SmallPolicyHandler(make()), make, rollouts=False) as theirs,
        sampling(SmallPolicyHandler(make()), make, rollouts=True, **place) as ours,
    ):
        compare(theirs, ours, identical)
        assert len(np.unique(np.asarray(ours.samples.agent.action))) > 1


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(
    n=st.integers(2, 7),
    rows=st.integers(1, 6),
    workers=st.integers(1, 3),
    groups=st.integers(1, 2),
    participate=st.booleans(),
)
def test_however_environments_are_spread(n, rows, workers, groups, participate):
    place = {"n_workers": min(workers, n - 1), "n_groups": groups, "participate": participate}
    size = {"n": n, "rows": rows}
    with (
        sampling(SmallPolicyHandler(categorical()), categorical, rollouts=False, **size) as theirs,
        sampling(
            SmallPolicyHandler(categorical()), categorical, rollouts=True, **size, **place
        ) as ours,
    ):
        compare(theirs, ours, identical, batches=2)


@pytest.fixture
def server_of_users(monkeypatch):
    """Put aside the fork server of the tests, which has imported PyTorch for others."""
    preload = [name for name in fork_server._preload if name != "parllel.torch"]
    monkeypatch.setattr(fork_server, "_preload", preload)
    monkeypatch.setattr(fork_server, "_server", None)
    yield
    fork_server.fork_server().kill()


@pytest.mark.usefixtures("server_of_users")
@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
def test_workers_do_without_torch(start_method):
    # Of this module's own classes a worker would import the module, and torch with it.
    class AskedEnv(gym.Wrapper):
        def has_torch(self):
            return "torch" in sys.modules

    spec, handler = BatchSpec(T, 2), SmallPolicyHandler(categorical())
    with SynchronizedProcessCage(
        [lambda: AskedEnv(CountingEnv(3))] * 2, n_workers=2, start_method=start_method
    ) as cage:
        samples = allocate_samples([cage], spec, handler, noise=True)
        cage.set_policy(handler.worker_policy())
        with RolloutSampler(spec, [cage], handler, samples) as sampler:
            sampler.collect_batch(0)
            assert cage.has_torch() == [False, False]
            assert np.asarray(samples.agent.agent_info.log_prob).all()


class ModelPolicy:
    """What a user might write: act with any model, which takes its parameters from shared memory."""

    def __init__(self, make_agent, shared):
        self.agent = make_agent()
        self.arrays = [p.detach().numpy() for p in self.agent.model.parameters()]
        self.shared, self.version, self.loaded = shared, -1, 0

    def bind(self, samples, columns):
        agent = samples.agent
        self.observation, self.noise, self.action, self.value, self.log_prob = (
            torch.from_numpy(np.asarray(field))[:, columns]
            for field in (
                agent.observation,
                agent.noise,
                agent.action,
                agent.agent_info.value,
                agent.agent_info.log_prob,
            )
        )

    def start_batch(self):
        before, self.version = self.version, self.shared.load(self.arrays, self.version)
        self.loaded += self.version != before

    def step(self, t):
        action, info = self.agent.step(self.observation[t], noise=self.noise[t])
        self.action[t], self.value[t], self.log_prob[t] = action, info.value, info.log_prob


class ModelHandler(TorchHandler):
    """And the other end of it."""

    shared = None

    def parameters(self):
        return [p.detach().numpy() for p in self.agent.model.parameters()]

    def worker_policy(self, make_agent):
        self.shared = SharedParameters(self.parameters())
        return partial(ModelPolicy, make_agent, self.shared)

    def start_batch(self):
        super().start_batch()
        if self.shared is not None:
            self.shared.publish(self.parameters())

    def close(self):
        super().close()
        if self.shared is not None:
            self.shared.close()


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked worker has no others
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("make", [categorical, gaussian], ids=lambda make: make.__name__)
def test_a_policy_of_ones_own_with_any_model(make):
    handler = ModelHandler(make())
    handler.worker_policy = partial(handler.worker_policy, make)
    with (
        sampling(TorchHandler(make()), make, rollouts=False) as theirs,
        sampling(handler, make, rollouts=True, n_workers=2, participate=True) as ours,
    ):
        compare(theirs, ours, close, batches=3)


def test_parameters_are_loaded_when_they_have_changed():
    handler = SmallPolicyHandler(categorical())
    with sampling(handler, categorical, rollouts=True, n_workers=1, participate=True) as sampler:
        for changes in (False, False, True, False):
            if changes:
                shake(handler.agent, 3, 1.0)
            samples, _ = sampler.collect_batch(0)
            seen = torch.from_numpy(np.array(samples.agent.observation))
            behind = handler.agent.value(seen.reshape(-1, 3)).reshape(T, B)
            np.testing.assert_allclose(
                np.asarray(samples.agent.agent_info.value), behind, rtol=1e-5, atol=1e-5
            )


class CountedLoads(SharedParameters):
    def load(self, out, seen=-1):
        if seen == self.version:  # what is not to be loaded may as well not be there
            out = None
        return super().load(out, seen)


def test_unchanged_parameters_are_not_touched_by_the_worker():
    handler = SmallPolicyHandler(categorical())
    handler._shared = CountedLoads(handler._policy.parameters)
    with sampling(handler, categorical, rollouts=True, n_workers=1) as sampler:
        for _ in range(3):
            sampler.collect_batch(0)


def test_a_buffer_without_noise_is_refused():
    handler = SmallPolicyHandler(categorical())
    with SynchronizedProcessCage(
        [partial(PlainEnv, SPACES[categorical], 3)] * 2, n_workers=1, start_method="fork"
    ) as cage:
        spec = BatchSpec(T, 2)
        samples = allocate_samples([cage], spec, handler)
        cage.set_policy(handler.worker_policy())
        with pytest.raises(ValueError, match=r"agent\.noise: expected a field.*noise=True"):
            RolloutSampler(spec, [cage], handler, samples)
    handler.close()


def test_a_policy_has_to_be_bound():
    policy = SmallPolicy((3, 4), (3, 1), nvec=(4,), action_shape=())
    shared = SharedParameters(policy.parameters)
    worker = SmallWorkerPolicy(lambda: policy, shared)
    with pytest.raises(WrongStateError, match="SmallWorkerPolicy: no batch is bound"):
        worker.start_batch()
    shared.close()


@pytest.mark.usefixtures("one_thread")
def test_ppo_learns_cartpole_with_it():
    seeds, spec = Seeds(0), BatchSpec(64, 16)
    cages = build_cages(
        partial(gym.make, "CartPole-v1"),
        spec.B,
        seeds=seeds,
        parallel=Plan(n_workers=1, n_main=8),
        traj_info=partial(TrajInfo, discount=0.98),
    )
    with cages[0] as cage:
        model = PgModel((4,), CategoricalHead(2), (64, 64), seed=seeds.integer("model"))
        agent = CategoricalPgAgent(model, 2, seed=seeds.integer("agent"))
        handler = SmallPolicyHandler(agent)
        transforms = [EstimateAdvantage(0.98, 0.9), NormalizeAdvantage()]
        samples = allocate_samples(cages, spec, handler, transforms, noise=True)
        cage.set_policy(handler.worker_policy())
        algorithm = PPO(
            agent,
            **{**PPO_DEFAULTS, "learning_rate": 1e-3, "epochs": 8},
            seed=seeds.integer("algorithm"),
        )
        returns = []
        with RolloutSampler(spec, cages, handler, samples, batch_transforms=transforms) as sampler:
            for batch in range(20):
                samples, trajectories = sampler.collect_batch(batch * spec.size)
                algorithm.optimize_agent((batch + 1) * spec.size, samples)
                returns.append([trajectory.return_ for trajectory in trajectories])
    # Random actions keep the pole up for about 22 steps.
    assert np.mean(np.concatenate(returns[:2])) < 40
    assert np.mean(np.concatenate(returns[-4:])) > 80
