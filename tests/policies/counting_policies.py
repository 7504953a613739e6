"""A policy that decides as the agents of the sampler contract do, and setups with it in their place."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from parllel.policies import Policy, PolicyAgent
from parllel.testing.dummy_agents import fingerprint
from parllel.testing.sampler_setup import SamplerSetup

NOT_GIVEN = ("agent.agent_info.", "agent.final_value", "agent.initial_rnn_state")


class CountingPolicy(Policy):
    """Decide as a CountingAgent does or, if `recurrent`, as a RecurrentCountingAgent."""

    def __init__(self, spaces, seed, recurrent):
        self.observation_space, self.action_space = spaces.observation, spaces.action
        self.recurrent = recurrent
        self.closed = 0
        self._generator = np.random.default_rng(seed)
        self._noise = None  # of the batch, [T, B]
        self._rows = None  # how many of it each environment has used, [B]
        self._episodes = {}  # what is remembered, and the previous action

    def begin_batch(self, T, B):
        self._noise = self._generator.integers(0, 1000, (T, B), dtype=np.int32)
        self._rows = np.zeros(B, int)

    def act(self, observation, env_indices):
        actions = []
        for seen, number in zip(fingerprint(observation), env_indices, strict=True):
            number = int(number)
            memory, previous = self._episodes.get(number, (0, 0))
            action = int(np.floor(seen + memory)) + self._draw(number) + previous
            action %= int(self.action_space.n)
            actions.append(action)
            if self.recurrent:
                self._episodes[number] = (2 * memory + int(np.floor(seen))) % 16, action
        return np.array(actions, np.int64)

    def _draw(self, number):
        column, evaluating = divmod(number, 2)
        if evaluating:
            return 0
        self._rows[column] += 1
        return int(self._noise[self._rows[column] - 1, column])

    def reset(self, env_indices=None, seeds=None):
        assert env_indices is not None  # an agent knows for which mode it is
        for number in env_indices:
            self._episodes.pop(int(number), None)

    def state(self):
        return {
            "generator": self._generator.bit_generator.state,
            "episodes": {str(number): list(one) for number, one in self._episodes.items()},
        }

    def load_state(self, state):
        self._generator.bit_generator.state = state["generator"]
        self._episodes = {int(number): tuple(one) for number, one in state["episodes"].items()}

    def close(self):
        self.closed += 1


class NoisyPolicyAgent(PolicyAgent):
    """Let the policy know when a batch begins, as the noise that is expected is drawn for a whole one."""

    def draw_noise(self, T, B):
        self.policy.begin_batch(T, B)


@dataclass(frozen=True)
class PolicySetup(SamplerSetup):
    """A setup with a PolicyAgent."""

    def agent(self):
        return NoisyPolicyAgent(CountingPolicy(self.spaces(), self.seed, self.recurrent))


def with_policy(setup, **changes):
    """Return a setup like this with a PolicyAgent."""
    given = {field.name: getattr(setup, field.name) for field in fields(setup)}
    return PolicySetup(**{**given, **changes})


def actions_alone(batches):
    """Leave out of simulated batches what a PolicyAgent does not give."""
    for batch in batches:
        batch.fields = {
            path: field for path, field in batch.fields.items() if not path.startswith(NOT_GIVEN)
        }
    return batches
