"""A policy of any specification as what decides in a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent
from parllel.policies.policy import Policy

AnySpace = gym.Space[Any] | None


class PolicyWorkerAgent(WorkerAgent):
    """Let a policy decide, as its environment 0.

    Args:
        make_policy: called with the observation and the action space of an environment, and again for other
            spaces; it may return the same policy then. The last one is closed with this.

    Raises, from `bind`:
        ValueError: for a policy of other spaces.
    """

    def __init__(self, make_policy: Callable[[AnySpace, AnySpace], Policy]) -> None:
        self._make = make_policy
        self._policy: Policy | None = None
        self._spaces: tuple[AnySpace, AnySpace] = (None, None)

    def bind(self, observation_space: AnySpace, action_space: AnySpace) -> None:
        """Make the policy for these spaces."""
        spaces = (observation_space, action_space)
        # A player is bound for each game; a policy may take seconds to load.
        if self._policy is not None and spaces == self._spaces:
            return
        policy, before = self._make(*spaces), self._policy
        self._policy, self._spaces = policy, spaces
        if before is not None and before is not policy:
            before.close()
        _check_spaces(policy, {"observation": observation_space, "action": action_space})

    def reset(self, seed: int | None) -> None:
        """Let the policy begin an episode."""
        self._bound().reset([0], [seed])

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return the policy's action."""
        return Decision(self._bound().act_one(observation))

    def close(self) -> None:
        """Close the policy; may be called twice."""
        policy, self._policy = self._policy, None
        if policy is not None:
            policy.close()

    def _bound(self) -> Policy:
        assert self._policy is not None
        return self._policy


def _check_spaces(policy: Policy, spaces: Mapping[str, AnySpace]) -> None:
    """Raise ValueError for a policy of other environments, as `play_episodes` does."""
    for kind, came in spaces.items():
        expected = getattr(policy, f"{kind}_space")
        if came is not None and expected is not None and came != expected:
            raise ValueError(
                f"expected the {kind} space {expected}, for which the {type(policy).__name__} was made; the "
                f"environment has {came}"
            )
