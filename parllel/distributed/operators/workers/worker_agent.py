"""Interface of agents in workers, and adapters of policies and functions to it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np


class Decision(NamedTuple):
    """An agent's decision.

    Attributes:
        action: the action for the environment.
        raw: the agent's literal answer, such as the text of a language model.
        parsed: the action parsed from it, as JSON values, before conversion to the environment's space.
        tokens: total number of tokens used.
        prompt_tokens, completion_tokens: numbers of tokens used by questions and by answers.
        calls: number of answers of a language model.
        understood: whether the action follows from a language model's answer; False if a substitute was
            played for an answer that names no action, None for agents without a language model.
        answers: answers of a language model, each as its server sent it, as JSON values.
        prompts: messages sent to a language model for this decision, each as {"role", "content"}. Answers
            and earlier turns are left out.
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
    prompts: list[Any] | None = None


# Costs of language models, in decisions, replies and records.
COUNTS = ("tokens", "prompt_tokens", "completion_tokens", "calls")
_NO_MORE = (None,) * 7  # the fields after `parsed`


def checked_decision(made: Any) -> Decision:
    """Return a decision, normalised for replies.

    Raises:
        TypeError: if it is not a Decision, or contains values that a reply cannot hold.
    """
    if type(made) is not Decision and not isinstance(made, Decision):
        raise TypeError(f"decide: expected a Decision, got {made!r}")
    if made[1] is None and made[2] is None and made[3:] == _NO_MORE:
        # Fast path of agents that return only an action.
        return made
    _, raw, parsed, *counts, understood, answers, prompts = made
    if raw is not None and not isinstance(raw, str):
        raise TypeError(f"decide: raw: expected a str, got {raw!r}")
    for name, count in zip(COUNTS, counts, strict=True):
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral)):
            raise TypeError(f"decide: {name}: expected an int, got {count!r}")
    if understood is not None and not isinstance(understood, (bool, np.bool_)):
        raise TypeError(f"decide: understood: expected a bool, got {understood!r}")
    for name, values in (("answers", answers), ("prompts", prompts)):
        if values is not None and not isinstance(values, list):
            raise TypeError(f"decide: {name}: expected a list, got {values!r}")
    if raw is not None and not raw.isascii():
        # Models emit unpaired surrogates, which UTF-8 cannot encode.
        raw = raw.encode("utf-8", "replace").decode()
    whole: dict[str, Any] = {
        name: None if count is None else int(count)
        for name, count in zip(COUNTS, counts, strict=True)
    }
    for name, values in (("parsed", parsed), ("answers", answers), ("prompts", prompts)):
        try:
            json.dumps(values, allow_nan=False, default=lambda value: value.tolist()).encode()
        except (AttributeError, TypeError, ValueError, RecursionError):
            raise TypeError(
                f"decide: {name}: expected values that JSON can hold, got {values!r}"
            ) from None
    understood = None if understood is None else bool(understood)
    return made._replace(raw=raw, understood=understood, **whole)


class WorkerAgent(ABC):
    """Decides for one environment, or as one player of a game.

    Attributes:
        takes_actions: whether a step may contain an action that a person chose.
    """

    takes_actions: bool = False

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces. Called first, and again for each environment. None means unknown.

        An exception is reported as "Failed to load policy: ...".
        """

    def reset(self, seed: int | None) -> None:
        """Start an episode.

        All its random numbers are derived from the seed. None continues the random stream.
        """

    @abstractmethod
    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return a decision for an observation of the environment.

        info: info of the environment. For players of a game it also has "player_id", and
            "legal_actions" and "text" if the game provides them.
        """

    def close(self) -> None:
        """Release resources. Idempotent."""


class _PolicyDecides(WorkerAgent):
    """Decides by a policy of parllel.policies, as its environment 0."""

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
    """Decides by a function of one observation."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        made = self._function(observation)
        return made if isinstance(made, Decision) else Decision(made)


def worker_agent_of(agent: Any) -> WorkerAgent:
    """Return a WorkerAgent that decides as `agent` does.

    agent: a WorkerAgent; a Policy, recognised by `act_one` and `reset` because its package is not imported
        here; or a function that takes an observation and returns an action or a Decision.

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
