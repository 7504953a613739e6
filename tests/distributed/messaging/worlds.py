"""Agents and physics for tests, and the same rollouts by plain functions."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.utils.seeding import np_random

from parllel.distributed.messaging import Agent, ExecutionMode, KafkaMultiAgentEnv
from parllel.distributed.wire import digest
from parllel.seeding import Seeds

# By name: what is below each root.
TREES = {
    "no subordinates": {"only": {}},
    "grid": {"grid1": {"device1": {}, "device2": {}}},
    "several roots": {"a": {"a_": {}, "a__b": {}}, "b": {}, "env_a__": {"to": {"action": {}}}},
    "five levels": {"1": {"2": {"3": {"4": {"5": {}, "6": {}}}, "7": {}}}},
    # Halves of surrogate pairs, which UTF-8 has not, and what separates.
    "any string": {"\ud800": {"\udfff\n": {}, " ": {"\0": {}}}},
}
BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
NOTHING = np.zeros(2, np.float32)  # an action


class Node(Agent):
    """Counts what it was told, adds noise of its own, and reports what those below it report."""

    def __init__(self, agent_id, **settings):
        super().__init__(agent_id, observation_space=BOX, action_space=BOX, **settings)
        self.total = 0.0

    def observe(self, global_state):
        return observed(global_state, self.agent_id)

    def decide(self, observation, action):
        self.total += float(action[0])
        return decided(observation, action, self.np_random, list(self.subordinates))

    def compile_info(self, infos):
        return compiled(self.total, self._last_observation, infos)

    def reset(self):
        self.total = 0.0

    def state(self):
        return {"total": self.total}

    def load_state(self, state):
        self.total = state["total"]


class World(KafkaMultiAgentEnv):
    """Leaves push positions about; an episode ends when they are far out."""

    def __init__(self, *args, ends_beyond=np.inf, **settings):
        super().__init__(*args, **settings)
        self.ends_beyond = ends_beyond
        self.positions = {}

    def get_global_state(self):
        return {"timestep": self.timestep, "positions": self.positions}

    def reset_physics(self):
        self.positions = {leaf.agent_id: self.np_random.normal() for leaf in self.hierarchy.leaves}

    def apply_actions(self, actions):
        self.positions = moved(self.positions, actions, self.np_random)

    def is_terminated(self, all_info):
        return far(self.positions, self.ends_beyond)

    def physics_state(self):
        return {"positions": dict(self.positions)}

    def load_physics_state(self, state):
        self.positions = dict(state["positions"])


def make_agents(tree, mode=ExecutionMode.ASYNC, cls=Node):
    """Return the agents of one environment by id."""
    agents = {}

    def add(name, below):
        subordinates = {sub: add(sub, under) for sub, under in below.items()}
        agents[name] = cls(name, subordinates=subordinates, execution_mode=mode)
        return agents[name]

    for root, below in tree.items():
        add(root, below)
    return agents


def assert_equal(came, expected):
    """Compare two results bit by bit, whatever the agents are called."""
    assert digest(_escaped(came)) == digest(_escaped(expected))


def _escaped(value):
    if isinstance(value, dict):
        return {ascii(name): _escaped(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(part) for part in value]
    return value


def draw_actions(tree, generator):
    """Return one action for each root."""
    return {root: generator.normal(size=2).astype(np.float32) for root in tree}


def observed(global_state, name):
    place = global_state["positions"].get(name, 0.0)
    return np.array([place, global_state["timestep"]], np.float32)


def decided(observation, action, generator, subordinates):
    noise = np.float32(generator.normal())
    if not subordinates:
        return action * np.float32(0.5) + noise * np.float32(0.01) - observation[0]
    return {name: action / (k + 1) + noise for k, name in enumerate(subordinates)}


def compiled(total, observation, infos):
    seen = sum((info["observation"] for info in infos.values()), np.zeros(2, np.float32))
    return {
        "reward": total + sum(info["reward"] for info in infos.values()),
        "observation": observation + seen,
        "agents": 1 + sum(info["agents"] for info in infos.values()),
    }


def moved(positions, actions, generator):
    return {
        name: place + 0.1 * float(actions[name][0]) + 0.01 * generator.normal()
        for name, place in positions.items()
    }


def far(positions, ends_beyond):
    return any(abs(place) > ends_beyond for place in positions.values())


class PlainWorld:
    """The same by plain recursive calls: what every face and mode must agree with."""

    def __init__(self, tree, ends_beyond=np.inf, max_steps=None):
        self.tree = tree
        self.ends_beyond = ends_beyond
        self.max_steps = max_steps

    def reset(self, seed=None):
        if seed is not None:
            self.physics = np_random(seed)[0]
            seeds = Seeds(seed)
            self.generators = {name: seeds.generator(name) for name in names(self.tree)}
        self.timestep = 0
        self.total = dict.fromkeys(names(self.tree), 0.0)
        self.positions = {name: self.physics.normal() for name in leaves(self.tree)}
        self.seen = {name: observed(self.state(), name) for name in names(self.tree)}
        return {root: self.seen[root] for root in self.tree}

    def state(self):
        return {"timestep": self.timestep, "positions": self.positions}

    def step(self, actions):
        self.pushes = {}
        for root, below in self.tree.items():
            self.go_down(root, below, actions[root])
        self.positions = moved(self.positions, self.pushes, self.physics)
        self.timestep += 1
        infos = {root: self.go_up(root, below) for root, below in self.tree.items()}
        observations = {root: info["observation"] for root, info in infos.items()}
        rewards = {root: info["reward"] for root, info in infos.items()}
        truncated = self.max_steps is not None and self.timestep >= self.max_steps
        return observations, rewards, far(self.positions, self.ends_beyond), truncated, infos

    def go_down(self, name, below, action):
        self.total[name] += float(action[0])
        out = decided(self.seen[name], action, self.generators[name], list(below))
        if not below:
            self.pushes[name] = out
        for sub, under in below.items():
            self.go_down(sub, under, out[sub])

    def go_up(self, name, below):
        infos = {sub: self.go_up(sub, under) for sub, under in below.items()}
        self.seen[name] = observed(self.state(), name)
        return compiled(self.total[name], self.seen[name], infos)


class Learner(Node):
    """A node whose policy sees what it observes and what its parent asks for."""

    def policy_observation(self, observation, action):
        return observation + (NOTHING if action is None else action)

    def decide(self, observation, action):
        # Roots get None if policies act below.
        return super().decide(observation, NOTHING if action is None else action)


class PlainTrained(PlainWorld):
    """The same by plain recursive calls, in two halves."""

    def __init__(self, tree, trained, **ends):
        super().__init__(tree, **ends)
        self.trained = trained

    def reset(self, seed=None):
        super().reset(seed)
        return self.begin()

    def begin(self):
        """Go down to where policies act, and return what they observe."""
        self.pushes, self.waiting, self.inputs, self.reports = {}, {}, {}, {}
        for root, below in self.tree.items():
            self.go_down(root, below, NOTHING)
        return {name: self.inputs[name] for name in self.trained}

    def go_down(self, name, below, action):
        if name in self.trained and name not in self.inputs:
            self.inputs[name], self.waiting[name] = self.seen[name] + action, below
        else:
            super().go_down(name, below, action)

    def go_up(self, name, below):
        self.reports[name] = super().go_up(name, below)
        return self.reports[name]

    def step(self, actions):
        for name, below in self.waiting.items():
            self.go_down(name, below, actions[name])
        self.positions = moved(self.positions, self.pushes, self.physics)
        self.timestep += 1
        for root, below in self.tree.items():
            self.go_up(root, below)
        infos = {name: self.reports[name] for name in self.trained}
        rewards = {name: info["reward"] for name, info in infos.items()}
        terminated = far(self.positions, self.ends_beyond)
        truncated = self.max_steps is not None and self.timestep >= self.max_steps
        return self.begin(), rewards, terminated, truncated, infos


def draw(trained, draws):
    return {name: draws.normal(size=2).astype(np.float32) for name in trained}


def play(envs, plain, trained, n_steps, after_step=lambda number: None):
    """Step and reset any subset, and compare with plain calls bit for bit."""
    draws, ended = np.random.default_rng(1), 0
    assert_equal(envs.reset(seed=4), [one.reset(4 + i) for i, one in enumerate(plain)])
    for number in range(n_steps):
        actions = [None if draws.random() < 0.3 else draw(trained, draws) for _ in plain]
        due = []
        for i, result in enumerate(envs.step_some(actions)):
            if result is not None:
                expected = plain[i].step(actions[i])
                assert_equal(tuple(result), expected)
                if expected[2] or expected[3]:
                    due.append(i)
        assert_equal(envs.reset(due), [plain[i].reset() for i in due])
        ended += len(due)
        after_step(number)
    assert ended


def names(tree):
    """Return all ids of a tree."""
    return [name for root, below in tree.items() for name in (root, *names(below))]


def leaves(tree):
    """Return the ids without subordinates, those nearest to the environment first."""
    found, level = [], list(tree.items())
    while level:
        found += [name for name, below in level if not below]
        level = [item for _, below in level for item in below.items()]
    return found
