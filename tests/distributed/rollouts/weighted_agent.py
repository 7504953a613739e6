"""Agents whose answers tell their weights."""

from __future__ import annotations

import numpy as np

from parllel.agents import NumpyHandler
from parllel.agents.agent import ALL_ENVS
from parllel.buffers import NamedTuple
from parllel.testing.dummy_agents import CountingAgent, RecurrentCountingAgent


class _Weighted:
    """Add one number that was learned to a counting agent; `agent_info.weight` [N] says it.

    acting: called whenever the agent acts.
    """

    def __init__(self, n_actions, seed=0, **options):
        super().__init__(n_actions, seed, **options)
        self.weight = np.zeros(1)
        self.acting = lambda: None

    def step(self, observation, *, env_indices=ALL_ENVS, noise=None):
        self.acting()
        action, info = super().step(observation, env_indices=env_indices, noise=noise)
        weight = np.full(len(action), self.weight[0], np.float32)
        return action, NamedTuple(**info._asdict(), weight=weight)

    def models(self):
        return {"model": self.weight}

    @staticmethod
    def weights(number):
        """Return weights for `load_weights`."""
        return {"model": {"weight": np.array([float(number)])}}

    def state(self):
        return {**super().state(), "model": {"weight": self.weight.copy()}}

    def load_state(self, state):
        super().load_state(state)
        self.weight = np.array(state["model"]["weight"])


class WeightedAgent(_Weighted, CountingAgent):
    """A CountingAgent with a weight."""


class RecurrentWeightedAgent(_Weighted, RecurrentCountingAgent):
    """A RecurrentCountingAgent with a weight."""


def weighted(*, recurrent=False, n_envs=0):
    if recurrent:
        return NumpyHandler(RecurrentWeightedAgent(4, n_envs=n_envs))
    return NumpyHandler(WeightedAgent(4))
