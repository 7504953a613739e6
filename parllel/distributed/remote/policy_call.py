"""Policies as agents of episodes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import numpy as np

from parllel.buffers.tree import buffer_map
from parllel.distributed.remote.call_agent import failure_of
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.wire.space_json import from_json, to_json
from parllel.policies.policy import Policy

_MAX_EPISODES = 4096  # whose recurrent state is kept at the same time


class PolicyCall:
    """Calls a policy with the observations of episodes.

    An episode's observation contains the environment's observation as JSON under "observation".
    "step" 0 starts an episode. "env_index", an int of at least 0, identifies the episode. Without
    it, the position in the batch identifies it. For a recurrent policy, the states of 4,096
    episodes are kept, and the least recently used is dropped.

    Args:
        policy: a policy with known spaces.

    Raises:
        ValueError: if the policy does not know its spaces.
    """

    def __init__(self, policy: Policy) -> None:
        if policy.observation_space is None or policy.action_space is None:
            raise ValueError(
                f"{type(policy).__name__}: expected a policy with an observation space and an "
                "action space, which define the JSON form of observations and actions, got one "
                "without"
            )
        self._policy = policy
        self._observation_space, self._action_space = policy.observation_space, policy.action_space
        self._numbers: OrderedDict[int, int] = OrderedDict()

    def __call__(self, observations: Sequence[Any]) -> list[Any]:
        """Return an action as JSON values, or an AgentFailure, for each observation of a batch."""
        answers: list[Any] = []
        rows: list[tuple[int, Any, int, bool]] = []
        for place, observation in enumerate(observations):
            try:
                rows.append((place, *self._read(observation, place)))
                answers.append(None)
            except ValueError as error:
                answers.append(AgentFailure("ERROR", f"observation: {error}"))
        if not rows:
            return answers
        numbers = [self._number(env_index) for _, _, env_index, _ in rows]
        new = [number for number, (*_, begins) in zip(numbers, rows, strict=True) if begins]
        if new:
            self._policy.reset(new)
        batch = buffer_map(lambda *leaves: np.stack(leaves), *(row[1] for row in rows))
        actions = self._policy.act(batch, numbers)
        for i, (place, *_) in enumerate(rows):
            action = buffer_map(lambda leaf, i=i: leaf[i], actions)
            answers[place] = to_json(self._action_space, action)
        return answers

    def answers(self, observations: Sequence[Any], errors: TextIO) -> list[Any]:
        """Like `__call__`, but an exception becomes a failure of the whole batch.

        Its traceback is written to `errors`. KeyboardInterrupt is raised.
        """
        try:
            return self(observations)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return [failure_of(error, errors)] * len(observations)

    def _read(self, observation: Any, place: int) -> tuple[Any, int, bool]:
        """Return the environment's observation, its env_index, and whether an episode starts."""
        if not isinstance(observation, Mapping) or "observation" not in observation:
            raise ValueError(
                'expected an object with "observation", the JSON of the environment\'s observation'
            )
        env_index = observation.get("env_index", place)
        if type(env_index) is not int or not 0 <= env_index < math.inf:
            raise ValueError(f"env_index: expected an int of at least 0, got {env_index!r}")
        value = from_json(self._observation_space, observation["observation"])
        return value, env_index, observation.get("step", 0) == 0

    def _number(self, env_index: int) -> int:
        """Return the number that identifies an environment to the policy."""
        if not self._policy.recurrent:
            # Without recurrent state any distinct numbers will do.
            return env_index
        # Popped and inserted again: the first entry is always the least recently used.
        number = self._numbers.pop(env_index, len(self._numbers))
        if number == _MAX_EPISODES:
            _, number = self._numbers.popitem(last=False)
            self._policy.reset([number])
        self._numbers[env_index] = number
        return number
