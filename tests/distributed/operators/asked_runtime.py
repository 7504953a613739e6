"""A runtime in this process, asked as a driver would, and an environment whose rewards are known."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np

from parllel.distributed.operators import Decision, WorkerAgent
from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime


class Counting(gym.Env):
    """Pay the rewards of a list, then terminate; show how many steps were taken."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, rewards=(1.0, 0.5, 2.0), render_mode="rgb_array", action_space=None):
        self.rewards, self.render_mode = list(rewards), render_mode
        self.observation_space = gym.spaces.Box(0, 100, (2,), np.float32)
        self.action_space = action_space or gym.spaces.Discrete(3)
        self.seeds, self.taken, self.n, self.n_closed, self.drawn = [], [], 0, 0, 0

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.n = 0
        return self._seen(), {}

    def _seen(self):
        return np.array([self.n, len(self.rewards)], np.float32)

    def step(self, action):
        self.taken.append(action)
        reward = self.rewards[self.n]
        if isinstance(reward, BaseException):
            raise reward
        self.n += 1
        ended = self.n == len(self.rewards)
        return self._seen(), reward, ended, False, {"is_success": np.True_} if ended else {}

    def render(self):
        self.drawn += 1
        picture = np.zeros((4, 6, 3), np.uint8)
        picture[0, 1] = [255, self.n, 7]
        return picture

    def close(self):
        self.n_closed += 1


class Deciding(WorkerAgent):
    """Decide what a list says, raise what is an exception, and remember what it saw and was told."""

    def __init__(self, decisions=()):
        self.decisions, self.seeds, self.seen, self.n_closed = list(decisions), [], [], 0
        self.bound, self.infos = [], []

    def bind(self, observation_space, action_space):
        self.bound.append((observation_space, action_space))

    def reset(self, seed):
        self.seeds.append(seed)

    def decide(self, observation, info):
        self.seen.append(getattr(observation, "tolist", lambda: observation)())
        self.infos.append(info)
        made = self.decisions.pop(0) if self.decisions else Decision(1)
        if isinstance(made, BaseException):
            raise made
        return made

    def close(self):
        self.n_closed += 1


def runtime_of(env=None, agent=None, **options):
    """Return a runtime that is ready for its first command, its environment and its agent."""
    env = Counting() if env is None else env
    agent = Deciding() if agent is None else agent
    runtime = InteractiveRuntime(agent, lambda: env, **options)
    runtime.bind()
    return runtime, env, agent


def ask(runtime, command):
    """Return the replies to a command, a dict or a line, without what differs from run to run."""
    line = command if isinstance(command, bytes) else json.dumps(command).encode()
    replies = [json.loads(reply) for reply in runtime.answer(line).splitlines()]
    for reply in replies:
        if "decide_s" in reply:
            assert 0 <= reply.pop("decide_s") < 60
    return replies


def error_of(runtime, command):
    """Return the message of the one error that answers a command."""
    (reply,) = ask(runtime, command)
    assert reply["type"] == "error", reply
    return reply["message"]
