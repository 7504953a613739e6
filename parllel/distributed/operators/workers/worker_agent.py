"""What decides in a worker, and how other things that act become one."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np


class Decision(NamedTuple):
    """What an agent decided.

    Attributes:
        action: for the environment.
        raw: what it said, word by word, as the answer of a language model.
        parsed: what was made of that, as JSON values, before it became an action.
        tokens: that it took, in all.
        prompt_tokens, completion_tokens: that it was asked and answered with.
        calls: answers of a language model that it took.
        understood: whether the action follows from what a language model answered; False if it was played in
            place of an answer that names none, None of agents that are no language model.
        answers: of a language model, each as its server sent it, as JSON values.
    """

    action: Any
    raw: str | None = None
    parsed: Any = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    calls: int | None = None
    understood: bool | None = None
    answers: list[Any] | None = None


# What models are paid by, in decisions, replies and records.
COUNTS = ("tokens", "prompt_tokens", "completion_tokens", "calls")
_NO_MORE = (None,) * 6  # fields after `parsed`


def checked_decision(made: Any) -> Decision:
    """Return what an agent decided.

    Raises:
        TypeError: if it is no Decision, or one whose text and tokens a reply cannot hold.
    """
    if type(made) is not Decision and not isinstance(made, Decision):
        raise TypeError(f"decide: expected a Decision, got {made!r}")
    if made[1] is None and made[2] is None and made[3:] == _NO_MORE:
        return made
    _, raw, parsed, *counts, understood, answers = made
    if raw is not None and not isinstance(raw, str):
        raise TypeError(f"decide: raw: expected a str, got {raw!r}")
    for name, count in zip(COUNTS, counts, strict=True):
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral)):
            raise TypeError(f"decide: {name}: expected an int, got {count!r}")
    if understood is not None and not isinstance(understood, (bool, np.bool_)):
        raise TypeError(f"decide: understood: expected a bool, got {understood!r}")
    if answers is not None and not isinstance(answers, list):
        raise TypeError(f"decide: answers: expected a list, got {answers!r}")
    if raw is not None and not raw.isascii():
        # Models write halves of surrogate pairs, which UTF-8 has not.
        raw = raw.encode("utf-8", "replace").decode()
    whole: dict[str, Any] = {
        name: None if count is None else int(count)
        for name, count in zip(COUNTS, counts, strict=True)
    }
    for name, values in (("parsed", parsed), ("answers", answers)):
        try:
            json.dumps(values, allow_nan=False, default=lambda value: value.tolist()).encode()
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise TypeError(
                f"decide: {name}: expected values that JSON has, got {values!r}"
            ) from None
    understood = None if understood is None else bool(understood)
    return made._replace(raw=raw, understood=understood, **whole)


class WorkerAgent(ABC):
    """Decide for one environment, or as one player of a game.

    Attributes:
        takes_actions: whether a step may bring the action along, which a person chose.
    """

    takes_actions: bool = False

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Learn the spaces, before anything else and once for each environment; None: not known.

        What it raises is answered as "Failed to load policy: ...".
        """

    def reset(self, seed: int | None) -> None:
        """Begin an episode; all that is drawn in it follows from the seed. None goes on drawing."""

    @abstractmethod
    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return a decision for an observation, as the environment gives it.

        info: of the environment. A player's also has "player_id", and "legal_actions" and "text" where the
            game gives them.
        """

    def close(self) -> None:
        """Release what it holds. Idempotent."""


class _PolicyDecides(WorkerAgent):
    """Let a policy of parllel.policies decide, as its environment 0."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def reset(self, seed: int | None) -> None:
        self._policy.reset([0], [seed])

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        return Decision(self._policy.act_one(observation))

    def close(self) -> None:
        close = getattr(self._policy, "close", None)
        if close is not None:
            close()


class _FunctionDecides(WorkerAgent):
    """Let a function of one observation decide."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        made = self._function(observation)
        return made if isinstance(made, Decision) else Decision(made)


def worker_agent_of(agent: Any) -> WorkerAgent:
    """Return what decides as `agent` does.

    agent: a WorkerAgent; a Policy, known by `act_one` and `reset`, as its package is not imported here; or a
        function that is given an observation and returns an action or a Decision.

    Raises:
        TypeError: if it is none of these.
    """
    if isinstance(agent, WorkerAgent):
        return agent
    if not isinstance(agent, type):  # a class has the methods of its objects
        if callable(getattr(agent, "act_one", None)) and callable(getattr(agent, "reset", None)):
            return _PolicyDecides(agent)
        if callable(agent):
            return _FunctionDecides(agent)
    raise TypeError(
        f"agent: expected a WorkerAgent, a Policy or a function of an observation, got {agent!r}"
    )
