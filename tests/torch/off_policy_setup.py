"""Small agents, batches and full sets of arguments for tests of SAC and TD3."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium.spaces import Box

from parllel.replays import Replay, Transitions
from parllel.torch import SAC, TD3, CriticModel, PolicyModel, SacAgent, TD3Agent

N_INPUTS = 3
# Neither centred nor of one width.
BOX = Box(np.array([-1, -0.5], np.float32), np.array([3, 0.5], np.float32))
UNIT_BOX = Box(-1, 1, (2,), np.float32)

SAC_SETTINGS = {
    "learning_rate": 1e-2,
    "tau": 0.1,
    "target_entropy": None,
    "initial_temperature": 0.7,
    "learn_temperature": True,
    "random_steps": 10,
    "seed": 0,
}
TD3_SETTINGS = {
    "learning_rate": 1e-2,
    "tau": 0.1,
    "policy_delay": 2,
    "target_noise": 0.2,
    "target_noise_clip": 0.3,
    "random_steps": 10,
    "seed": 0,
}


class NoReplay(Replay):
    """What a batch belongs to when no replay drew it."""

    n_stored = 0

    def add(self, samples, *, source=None):
        raise NotImplementedError

    sample = state = load_state = add


class Prioritized(NoReplay):
    def update_priorities(self, errors):
        self.errors = errors


def models(
    n_outputs, hidden=(8, 8), seed=0, *, size=2, activation="relu", n_critics=2, trunks=None
):
    generator = torch.Generator().manual_seed(seed)
    trunks = trunks or [N_INPUTS, N_INPUTS]
    policy = PolicyModel(trunks[0], n_outputs, hidden, generator, activation=activation)
    critics = CriticModel(
        trunks[1], size, hidden, generator, n_critics=n_critics, activation=activation
    )
    return policy, critics


def sac_agent(box=BOX, seed=0, **options):
    return SacAgent(*models(4, seed=seed, **options), box, seed=seed)


def td3_agent(box=BOX, seed=0, **options):
    return TD3Agent(*models(2, seed=seed, **options), box, exploration_noise=0.1, seed=seed)


def sac(agent=None, **settings):
    return SAC(agent or sac_agent(), **{**SAC_SETTINGS, **settings})


def td3(agent=None, **settings):
    return TD3(agent or td3_agent(), **{**TD3_SETTINGS, **settings})


def batch_of(n=32, seed=0, replay=None, box=BOX):
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        return rng.normal(size=shape).astype(np.float32)

    return Transitions(
        replay=replay or NoReplay(),
        observation=numbers(n, N_INPUTS),
        action=rng.uniform(box.low, box.high, (n, 2)).astype(np.float32),
        reward=numbers(n),
        next_observation=numbers(n, N_INPUTS),
        discount=np.where(rng.random(n) < 0.2, 0, 0.9).astype(np.float32),
        weight=rng.uniform(0.5, 1, n).astype(np.float32),
    )


def fixed_noise(algorithm, seed=5):
    """Make an algorithm draw the same noise for the same number of steps, and return the draws."""
    draws = []
    generator = torch.Generator().manual_seed(seed)

    def noise(n):
        draws.append(torch.randn(n, algorithm.agent.scale.size, generator=generator))
        return draws[-1]

    algorithm.noise = noise
    return draws


def parameters(module):
    return [p.detach().clone() for p in module.parameters()]
