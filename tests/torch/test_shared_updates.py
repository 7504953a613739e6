"""Updates of several learners, in threads, against those of one learner with the whole batch."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from ppo_setup import categorical, gaussian, parameters, ppo
from torch import nn

from parllel.algos import Algorithm
from parllel.algos.learner_group import LearnerGroup
from parllel.buffers import buffer_leaves
from parllel.distributed.rollouts import FragmentSampler
from parllel.runners.shared_learning import join_learners
from parllel.torch import MultiAgentPPO, RecurrentPPO
from parllel.types import BatchSpec

T, B = 8, 6
HEADS = {"categorical": categorical, "gaussian": gaussian}


class ThreadLearners(LearnerGroup):
    """Learners that are threads of one process."""

    def __init__(self, rank, arrays, barrier):
        self.n, self.rank = len(arrays), rank
        self._arrays, self._barrier = arrays, barrier

    @classmethod
    def make(cls, n):
        arrays, barrier = [None] * n, threading.Barrier(n, timeout=20)
        return [cls(rank, arrays, barrier) for rank in range(n)]

    def gather(self, array):
        self._arrays[self.rank] = array.copy()
        self._barrier.wait()
        found = list(self._arrays)
        self._barrier.wait()
        return found

    def add(self, array):
        array[:] = sum(self.gather(array))

    def start(self, folder):
        raise NotImplementedError

    ask = answers = start


def in_threads(functions):
    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(one) for one in functions]]


@pytest.fixture
def train(make_batch, refill):
    """Return a function that trains with n learners; it returns the weights, and the diagnostics by batch."""

    def parts_of(whole, like, n):
        columns = [slice(rank * B // n, (rank + 1) * B // n) for rank in range(n)]
        parts = [make_batch(like, T, B // n, **whole.options)[0] for _ in range(n)]
        for own, part in zip(columns, parts, strict=True):
            sources = dict(buffer_leaves(whole.samples))
            for path, leaf in buffer_leaves(part):
                leaf[:] = np.asarray(sources[path])[:, own]
        return parts

    class Whole:
        def __init__(self, agent, valid, dtype):
            self.options = {"valid": valid, "dtype": dtype}
            self.agent = agent
            self.samples, self.handler = make_batch(agent, T, B, **self.options)

        def fill(self, seed):
            refill(self.handler, self.samples, seed)
            if self.options["valid"]:
                valid = np.asarray(self.samples.env.valid)
                # Few of the first columns, so that a learner has no step of some minibatches.
                valid[:] = np.random.default_rng(seed).random((T, B)) < np.linspace(0.1, 1, B)

    def train(n, head, *, valid=False, dtype=np.float32, n_batches=5, **settings):
        # Made by one agent, so that batches do not depend on what is learned.
        agent = HEADS[head](torch.from_numpy(np.zeros(0, dtype)).dtype)
        whole = Whole(agent, valid, dtype)
        learners = ThreadLearners.make(n)
        algorithms = [ppo(copy.deepcopy(agent), **settings) for _ in range(n)]
        if n > 1:
            for one, algorithm in zip(learners, algorithms, strict=True):
                algorithm.join(one, BatchSpec(T, B // n))
        diagnostics = []
        for batch in range(n_batches):
            whole.fill(seed=batch)
            parts = parts_of(whole, agent, n)
            steps = (batch + 1) * T * B
            found = in_threads(
                [
                    lambda a=algorithm, part=part, steps=steps: a.optimize_agent(steps, part)
                    for algorithm, part in zip(algorithms, parts, strict=True)
                ]
            )
            assert all(one == found[0] for one in found)
            diagnostics.append({**found[0], "method": algorithms[0].update_method})
        weights = [parameters(algorithm.agent) for algorithm in algorithms]
        for other in weights[1:]:
            for name, array in weights[0].items():
                np.testing.assert_array_equal(other[name], array)
        return weights[0], diagnostics

    return train


@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("update", ["autograd", "auto", "flat"])
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.few(4)
def test_several_learners_equal_one(n, update, head, valid, train):
    # 5 batches of 2 epochs of 5 minibatches.
    options = {"update": update, "valid": valid, "minibatches": 5, "clip_grad_norm": 0.05}
    options["learning_rate_anneal_steps"] = 1000
    one, expected = train(1, head, **options)
    several, found = train(n, head, **options)
    for name, array in one.items():
        np.testing.assert_allclose(several[name], array, rtol=0, atol=1e-6, err_msg=name)
    for row, other in zip(expected, found, strict=True):
        assert row.pop("method") == other.pop("method")
        assert row.keys() == other.keys()
        for key, value in row.items():
            np.testing.assert_allclose(other[key], value, rtol=1e-4, atol=1e-6, err_msg=key)


def test_float64_models_are_summed_in_float64(train):
    one, _ = train(1, "gaussian", dtype=np.float64)
    two, _ = train(2, "gaussian", dtype=np.float64)
    for name, array in one.items():
        assert array.dtype == np.float64
        np.testing.assert_allclose(two[name], array, rtol=0, atol=1e-12)


def test_learners_stop_a_batch_together(train):
    options = {"kl_limit": 1e-3, "epochs": 4}
    one, expected = train(1, "categorical", **options)
    three, found = train(3, "categorical", **options)
    assert any(row["early_stop"] for row in expected)
    assert [row["epochs"] for row in found] == [row["epochs"] for row in expected]
    for name, array in one.items():
        np.testing.assert_allclose(three[name], array, rtol=0, atol=1e-6)


def test_all_learners_refuse_a_batch_with_too_few_valid_steps(make_batch):
    agent = categorical(torch.float32)
    algorithms = [ppo(copy.deepcopy(agent), minibatches=4) for _ in range(2)]
    batches = []
    for learners, algorithm in zip(ThreadLearners.make(2), algorithms, strict=True):
        algorithm.join(learners, BatchSpec(T, 3))
        samples, _ = make_batch(agent, T, 3, valid=True)
        np.asarray(samples.env.valid)[:] = False
        np.asarray(samples.env.valid)[0, 0] = True
        batches.append(samples)
    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(algorithm.optimize_agent, 48, samples)
            for algorithm, samples in zip(algorithms, batches, strict=True)
        ]
    for future in futures:
        with pytest.raises(ValueError, match="each of 4 minibatches, got 2 valid steps"):
            future.result()


def join(algorithm):
    algorithm.join(ThreadLearners.make(2)[0], BatchSpec(T, 3))


def test_batch_normalisation_is_refused():
    agent = categorical(torch.float32)
    agent.model.extra = nn.Sequential(nn.BatchNorm1d(3))
    with pytest.raises(
        TypeError, match=r"^PPO: several learners cannot train a BatchNorm1d \(extra\.0\), whose"
    ):
        join(ppo(agent))


def test_parameters_of_other_dtypes_are_refused():
    with pytest.raises(TypeError, match=r"^PPO: several learners train float32 .* torch\.bfloat16"):
        join(ppo(categorical(torch.bfloat16), update="autograd"))


def test_other_algorithms_are_refused():
    for kind, method in ((RecurrentPPO, "minibatches"), (MultiAgentPPO, "loss")):
        with pytest.raises(
            TypeError, match=f"^{kind.__name__} does not support several .* overrides {method}"
        ):
            join(kind.__new__(kind))
    own = ppo(categorical(torch.float32))
    own.apply_gradients = lambda: 0.0
    with pytest.raises(TypeError, match=r"does not support several .* overrides apply_gradients"):
        join(own)

    class Other(Algorithm):
        def optimize_agent(self, elapsed_steps, samples):
            return {}

    with pytest.raises(TypeError, match=r"^Other does not support several learners$"):
        join(Other())


def test_samplers_in_other_processes_are_refused():
    sampler = FragmentSampler.__new__(FragmentSampler)
    with pytest.raises(
        TypeError, match=r"^learners: .* AsynchronousSampler, got a FragmentSampler$"
    ):
        join_learners(sampler, ppo(categorical()), ThreadLearners.make(2)[0], BatchSpec(T, 3))
