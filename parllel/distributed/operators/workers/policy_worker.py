r"""Any specification of an agent that `parllel.policies` understands: a run, a file, a URL, an action.

parllel operators worker policy \
    --env-id CartPole-v1 --policy http://127.0.0.1:8000 --seeds 0:50
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent
from parllel.distributed.operators.workers.worker_main import (
    EnvFactory,
    LoadedWorker,
    run_worker,
    worker_parser,
)
from parllel.policies.policy import Policy
from parllel.policies.run_policy import RunPolicy
from parllel.policies.specification import code_of, policy_of

_AnySpace = gym.Space[Any] | None


class PolicyWorkerAgent(WorkerAgent):
    """Let a policy decide, as its environment 0.

    Args:
        make_policy: called with the observation and the action space of an environment, and again for other
            spaces; it may return the same policy then. The last one is closed with this.

    Raises, from `bind`:
        ValueError: for a policy of other spaces.
    """

    def __init__(self, make_policy: Callable[[_AnySpace, _AnySpace], Policy]) -> None:
        self._make = make_policy
        self._policy: Policy | None = None
        self._spaces: tuple[_AnySpace, _AnySpace] = (None, None)

    def bind(self, observation_space: _AnySpace, action_space: _AnySpace) -> None:
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
        """Close the policy. Idempotent."""
        policy, self._policy = self._policy, None
        if policy is not None:
            policy.close()

    def _bound(self) -> Policy:
        assert self._policy is not None
        return self._policy


def _check_spaces(policy: Policy, spaces: Mapping[str, _AnySpace]) -> None:
    """Raise ValueError for a policy of other environments, as `play_episodes` does."""
    for kind, came in spaces.items():
        expected = getattr(policy, f"{kind}_space")
        if came is not None and expected is not None and came != expected:
            raise ValueError(
                f"expected the {kind} space {expected}, for which the {type(policy).__name__} was made; the "
                f"environment has {came}"
            )


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the policy that `--policy` specifies; that of a run is loaded here.

    Raises: as `policy_of` does.
    """
    if given.policy is None:
        raise ValueError("--policy: expected a specification of what decides, got none")
    code = code_of(given.policy)
    if code is None or not code.is_dir():
        return LoadedWorker(specified_agent(given.policy), env_factory)
    policy = policy_of(given.policy)
    assert isinstance(policy, RunPolicy)
    return loaded_run(policy, given, env_factory)


def specified_agent(spec: str) -> PolicyWorkerAgent:
    """Return an agent that makes its policy when it knows the spaces."""
    return PolicyWorkerAgent(lambda observation, action: policy_of(spec, observation, action))


def loaded_run(
    policy: RunPolicy, given: argparse.Namespace, env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the policy of a run; a batch without an environment plays that of the run's evaluation."""
    if env_factory is None and not given.interactive:
        env_factory = policy.make_env
    return LoadedWorker(PolicyWorkerAgent(lambda observation, action: policy), env_factory)


def main() -> int:
    """Run this worker."""
    return run_worker(worker_parser("policy_worker", "Play with any policy."), load)


if __name__ == "__main__":
    sys.exit(main())
