"""Noise of a given seed, which leaves the agent's own generator alone."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from multi_agent_setup import independent, shared
from ppo_setup import categorical, gaussian

from parllel.agents import RandomAgent
from parllel.buffers import buffer_leaves
from parllel.testing.dummy_agents import CountingAgent

SPACE = spaces.Dict({"move": spaces.Box(-1, 1, (2,)), "turn": spaces.Discrete(100)})
AGENTS = {
    "random": lambda: RandomAgent(SPACE, seed=0),
    "categorical": categorical,
    "gaussian": gaussian,
    "independent": independent,
    "shared": shared,
    "counting": lambda: CountingAgent(4),
}


def drawn(agent, seed=None):
    noise = agent.draw_noise(5, 3, seed=seed)
    return {path: np.asarray(leaf).tobytes() for path, leaf in buffer_leaves(noise)}


@pytest.mark.parametrize("name", AGENTS)
def test_a_seed_draws_the_same_noise_at_any_time(name):
    agent, other = AGENTS[name](), AGENTS[name]()
    first = drawn(agent, seed=7)
    plain = drawn(agent)
    # What the seed draws takes nothing from the noise of batches.
    assert plain == drawn(other)
    assert drawn(agent, seed=7) == first == drawn(other, seed=7)
    second = drawn(agent, seed=8)
    assert all(second[path] != leaf for path, leaf in first.items())
    assert len(set(first.values())) == len(first)
