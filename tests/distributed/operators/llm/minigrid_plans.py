"""Plans that solve episodes of MiniGrid, found by trying: they know nothing of what models are shown."""

from __future__ import annotations

import copy
from collections import deque

import gymnasium as gym
import minigrid  # noqa: F401 - registers its environments


def plan_of(env_id, seed):
    """Return the shortest list of actions that earns a reward, and the views before each of them."""
    env = gym.make(env_id).unwrapped
    first, _ = env.reset(seed=seed)
    waiting = deque([(env, [], [first])])
    known = {_state(env)}
    while waiting:
        before, actions, views = waiting.popleft()
        for action in range(6):
            after = copy.deepcopy(before)
            view, reward, terminated, *_ = after.step(action)
            if reward > 0:
                return [*actions, action], views
            state = _state(after)
            if not terminated and state not in known:
                known.add(state)
                waiting.append((after, [*actions, action], [*views, view]))
    raise AssertionError(f"{env_id}, seed {seed}: no plan")


def _state(env):
    carried = None if env.carrying is None else env.carrying.encode()
    return tuple(env.agent_pos), env.agent_dir, carried, env.grid.encode().tobytes()
