"""An agent whose answers tell its weights."""

from __future__ import annotations

import numpy as np

from parllel.agents import NumpyHandler
from parllel.buffers import NamedTuple
from parllel.testing.dummy_agents import CountingAgent


class WeightedAgent(CountingAgent):
    """A CountingAgent with one number that it learned; `agent_info.weight` [N] says it."""

    def __init__(self, n_actions, seed=0):
        super().__init__(n_actions, seed)
        self.weight = np.zeros(1)

    def step(self, observation, *, env_indices=slice(None), noise=None):
        action, info = super().step(observation, noise=noise)
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


def weighted():
    return NumpyHandler(WeightedAgent(4))
