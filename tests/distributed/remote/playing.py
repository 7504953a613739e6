"""Agents and looks at episodes, for tests."""

from __future__ import annotations


def always(action):
    """Return an agent that does one thing."""
    return lambda observation: action


def script(*actions):
    """Return an agent that does one thing after another; an exception is raised."""
    left = list(actions)

    def act(observation):
        action = left.pop(0)
        if isinstance(action, BaseException):
            raise action
        return action

    return act


def played(steps):
    """Return (action, reward, status) of each agent in each step."""
    return [[(state["action"], state["reward"], state["status"]) for state in row] for row in steps]
