"""What asynchronous samplers are tested with."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from sampler_cages import synchronized, with_cages
from waiting import until

from parllel.buffers import NamedTuple
from parllel.samplers import AsynchronousSampler, BasicSampler
from parllel.samplers.batch_sides import mirror_of
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.sampler_setup import SamplerSetup, make_sampler

FOUR = tuple(partial(CountingEnv, lengths=n, end="alternate") for n in (3, 5, 1, 7))
WITHIN_S = 20.0


@dataclass(frozen=True)
class SwitchingSetup(SamplerSetup):
    """A setup whose buffer switches."""

    def _allocate(self, handler, transforms):
        return mirror_of(super()._allocate(handler, transforms))


def switching(setup):
    return SwitchingSetup(**{field.name: getattr(setup, field.name) for field in fields(setup)})


class WeightedAgent(CountingAgent):
    """A CountingAgent whose values are its weight; it has three of them, which are equal if all is well."""

    def __init__(self, n_actions=4, seed=0):
        super().__init__(n_actions, seed)
        self.weights = np.zeros(3)

    def step(self, observation, **arguments):
        action, info = super().step(observation, **arguments)
        return action, info._replace(value=np.full(len(action), self._weight(), np.float32))

    def value(self, observation, **arguments):
        return np.full(len(super().value(observation)), self._weight(), np.float32)

    def _weight(self):
        assert len(set(self.weights.tolist())) == 1
        return self.weights[0]

    def models(self):
        return {"scale": self}

    def state(self):
        return {**super().state(), "scale": {"all": self.weights.copy()}}

    def load_state(self, state):
        super().load_state(state)
        self.weights = np.array(state["scale"]["all"])


class WeightedSetup(SamplerSetup):
    def agent(self):
        return WeightedAgent(4, self.seed)


def build(setup, cls=BasicSampler):
    return make_sampler(cls, setup)


def asynchronous(setup, cls=BasicSampler, sampler_class=AsynchronousSampler, **options):
    options = {"start_method": "fork", "timeout_s": WITHIN_S, **options}
    return sampler_class(partial(build, setup, cls), **options)


@pytest.fixture(scope="module", autouse=True)
def compiled_before():
    """Load compiled code here once, so that sampling processes that are forked find it."""
    with build(with_cages(SamplerSetup(2, FOUR), synchronized(2))) as sampler:
        sampler.collect_batch(0)


class GatedEnv(CountingEnv):
    """Say when step `number` begins, and let it end when the gate is open."""

    def __init__(self, folder, number, **options):
        super().__init__(**options)
        self.folder, self.left = folder, number

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            (self.folder / "begun").touch()
            until((self.folder / "open").exists)
        return super().step(action)


class SlowEnv(CountingEnv):
    """Take a while for each step."""

    def __init__(self, step_s, **options):
        super().__init__(**options)
        self.step_s = step_s

    def step(self, action):
        time.sleep(self.step_s)
        return super().step(action)


PRIMES = np.array([1, 40503, 30011, 20011, 12289, 6151, 3079, 1543])
MODULUS = 65521


def row_with_checksum(n):
    """Return the numbers of step n: n itself, then seven that it determines; [..., 8]."""
    return np.concatenate([n[..., None], n[..., None] * PRIMES[1:] % MODULUS], axis=-1)


class ChecksumEnv(gym.Env):
    """Count steps for ever; each observation holds numbers that the count determines."""

    observation_space = gym.spaces.Box(0, 2**23, (8,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def _observation(self):
        return row_with_checksum(np.asarray(self.n)).astype(np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return self._observation(), {"step": 0, "half": np.zeros(1, np.float32)}

    def step(self, action):
        self.n += 1
        return (
            self._observation(),
            float(self.n % MODULUS),
            False,
            False,
            {"step": self.n, "half": np.zeros(1, np.float32)},
        )


class ZeroAgent(CountingAgent):
    """Do nothing, quickly."""

    def step(self, observation, *, env_indices=None, noise=None):
        n = len(observation)
        return np.zeros(n, np.int64), NamedTuple(value=np.zeros(n, np.float32))

    def value(self, observation, *, env_indices=None):
        return np.zeros(len(observation), np.float32)


class ChecksumSetup(SamplerSetup):
    def agent(self):
        return ZeroAgent(2)


class SwitchingChecksumSetup(SwitchingSetup):
    def agent(self):
        return ZeroAgent(2)
