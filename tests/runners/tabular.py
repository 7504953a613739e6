"""Q-learning on a table: an agent, an algorithm and a replay of a list, in numpy."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import gymnasium as gym
import numpy as np

from parllel.agents import Agent, NumpyHandler
from parllel.agents.shared_parameters import SharedParameters
from parllel.algos import OffPolicyAlgorithm
from parllel.cages import VectorizedCage
from parllel.replays import Replay, Transitions

N_STATES, N_ACTIONS = 16, 4
make_lake = partial(gym.make, "FrozenLake-v1", is_slippery=False, max_episode_steps=30)


class TabularAgent(Agent):
    """Takes the best action of a table, or with probability epsilon any."""

    def __init__(self, seed):
        self.action_space = gym.spaces.Discrete(N_ACTIONS)
        self.q = np.zeros((N_STATES, N_ACTIONS), np.float32)
        self.epsilon = np.ones(1, np.float32)
        self.rng = np.random.default_rng(seed)
        self.greedy = False

    def step(self, observation, *, env_indices=slice(None), noise=None):
        values = self.q[observation]
        if self.greedy or noise is None:
            return values.argmax(-1), None
        # Equal actions are equally likely.
        best = (values + 1e-6 * noise[..., 2:]).argmax(-1)
        explores, action = noise[..., 0] < self.epsilon, noise[..., 1] * N_ACTIONS
        return np.where(explores, action.astype(np.int64), best), None

    def draw_noise(self, T, B, *, seed=None):
        rng = self.rng if seed is None else np.random.default_rng(seed)
        return rng.random((T, B, 2 + N_ACTIONS), np.float32)

    def sample_mode(self):
        self.greedy = False

    def eval_mode(self):
        self.greedy = True

    def models(self):
        return {"q": self.q, "epsilon": self.epsilon}

    def state(self):
        return {
            "q": self.q.copy(),
            "epsilon": self.epsilon.copy(),
            "rng": self.rng.bit_generator.state,
        }

    def load_state(self, state):
        self.q[...], self.epsilon[...] = state["q"], state["epsilon"]
        self.rng.bit_generator.state = state["rng"]


class QLearning(OffPolicyAlgorithm):
    """Q-learning (Watkins and Dayan 1992) with a step towards each drawn transition's target."""

    def __init__(self, agent, *, learning_rate=0.5, epsilon_steps=2000):
        self.agent, self.learning_rate = agent, learning_rate
        self.epsilon_steps = epsilon_steps
        self.steps = 0
        self.explored = []  # elapsed steps of `before_sampling`

    def before_sampling(self, elapsed_steps):
        self.explored.append(elapsed_steps)
        self.agent.epsilon[0] = max(0.1, 1 - elapsed_steps / self.epsilon_steps)

    def optimize_agent(self, elapsed_steps, samples):
        q, at = self.agent.q, (samples.observation, samples.action)
        target = samples.reward + samples.discount * q[samples.next_observation].max(-1)
        error = target - q[at]
        # One step for each cell, towards the mean of its errors.
        total, count = np.zeros_like(q), np.zeros_like(q)
        np.add.at(total, at, error)
        np.add.at(count, at, 1)
        q += self.learning_rate * total / np.maximum(count, 1)
        samples.update_priorities(np.abs(error))
        self.steps += 1
        return {"error": np.abs(error).mean(), "q": q.max(), "errors": error}

    def state(self):
        return {"steps": self.steps}

    def load_state(self, state):
        self.steps = int(state["steps"])


class ListReplay(Replay):
    """Keeps the last transitions in a list. Rows that continue in the next batch wait for it."""

    batch_class = Transitions
    reads: ClassVar = ("env.observation", "agent.action", "env.reward", "agent.final_observation")

    def __init__(self, samples, batch_size, *, discount=0.95, capacity=2000, seed=0):
        self.samples, self.batch_size = samples, batch_size
        self.discount, self.capacity = discount, capacity
        self.rng = np.random.default_rng(seed)
        self.items = []
        self.added = []  # the objects that were given

    @property
    def n_stored(self):
        return len(self.items)

    def add(self, samples, *, source=None):
        self.added.append(samples)
        env, agent = samples.env, samples.agent
        observation, action = np.asarray(env.observation), np.asarray(agent.action)
        after = np.array([np.asarray(env.observation[t + 1]) for t in range(len(observation))])
        cut = np.asarray(env.truncated) & ~np.asarray(env.terminated)
        after[cut] = np.asarray(agent.final_observation)[cut]
        discount = self.discount * ~np.asarray(env.terminated)
        valid = np.asarray(getattr(env, "valid", np.ones(cut.shape, bool)))
        parts = observation, action, np.asarray(env.reward), after, discount
        for t, b in np.argwhere(valid):
            self.items.append([float(part[t, b]) for part in parts])
        self.items = self.items[-self.capacity :]

    def sample(self):
        chosen = self.rng.integers(len(self.items), size=self.batch_size)
        drawn = np.array([self.items[i] for i in chosen], np.float32)
        names = "observation", "action", "reward", "next_observation", "discount"
        parts = dict(zip(names, drawn.T, strict=True))
        for name in ("observation", "action", "next_observation"):
            parts[name] = parts[name].astype(np.int64)
        return Transitions(replay=self, weight=np.ones(self.batch_size, np.float32), **parts)

    def state(self):
        items = np.array(self.items, np.float64).reshape(-1, 5)
        return {"items": items, "rng": self.rng.bit_generator.state}

    def load_state(self, state):
        self.items = np.asarray(state["items"]).tolist()
        self.rng.bit_generator.state = state["rng"]


def make_cages(B, seeds, name="environments", **options):
    return [VectorizedCage([make_lake] * B, seeds=seeds.spawn(name, B), **options)]


class TabularWorkerPolicy:
    """Acts in a worker, with the table that TabularWorkerHandler publishes."""

    def __init__(self, shared):
        self.shared, self.seen = shared, -1
        self.agent = TabularAgent(0)

    def bind(self, samples, columns):
        self.samples, self.columns = samples, columns

    def start_batch(self):
        self.seen = self.shared.load([self.agent.q, self.agent.epsilon], self.seen)

    def step(self, t):
        samples, columns = self.samples, self.columns
        noise = np.asarray(samples.agent.noise[t, columns])
        observation = np.asarray(samples.env.observation[t, columns])
        samples.agent.action[t, columns] = self.agent.step(observation, noise=noise)[0]


class TabularWorkerHandler(NumpyHandler):
    """Publishes the table to policies in workers before each batch."""

    def __init__(self, agent):
        super().__init__(agent)
        self.shared = SharedParameters([agent.q, agent.epsilon])

    def start_batch(self):
        super().start_batch()
        self.shared.publish([self.agent.q, self.agent.epsilon])

    def worker_policy(self):
        return partial(TabularWorkerPolicy, self.shared)


def make_handler(seed=1):
    return NumpyHandler(TabularAgent(seed))
