r"""Worker for any agent specification of `parllel.policies`: a run, a file, a URL, an action.

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
    """Worker agent that acts by a policy, as environment 0 of that policy.

    Args:
        make_policy: function that takes the observation and action space of an environment and
            returns a policy. It is called again when the spaces change, and may return the same
            policy. `close` closes the last policy.

    Raises, from `bind`:
        ValueError: if the policy was made for other spaces.
    """

    def __init__(self, make_policy: Callable[[_AnySpace, _AnySpace], Policy]) -> None:
        self._make = make_policy
        self._policy: Policy | None = None
        self._spaces: tuple[_AnySpace, _AnySpace] = (None, None)

    def bind(self, observation_space: _AnySpace, action_space: _AnySpace) -> None:
        """Make the policy for the spaces."""
        spaces = (observation_space, action_space)
        # A player is bound anew for each episode, and loading a policy may take seconds.
        if self._policy is not None and spaces == self._spaces:
            return
        policy, before = self._make(*spaces), self._policy
        self._policy, self._spaces = policy, spaces
        if before is not None and before is not policy:
            before.close()
        _check_spaces(policy, {"observation": observation_space, "action": action_space})

    def reset(self, seed: int | None) -> None:
        """Reset the policy for a new episode."""
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
    """Raise ValueError if the policy was made for other spaces, as `play_episodes` does."""
    for kind, actual in spaces.items():
        expected = getattr(policy, f"{kind}_space")
        if actual is not None and expected is not None and actual != expected:
            raise ValueError(
                f"expected the {kind} space {expected} of the {type(policy).__name__}, but the "
                f"environment has {actual}"
            )


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the policy named by `--policy`. The policy of a run folder is loaded immediately.

    Raises: the same errors as `policy_of`, and ValueError without `--policy`.
    """
    if given.policy is None:
        raise ValueError("--policy: expected an agent specification, got none")
    code = code_of(given.policy)
    if code is None or not code.is_dir():
        return LoadedWorker(specified_agent(given.policy), env_factory)
    policy = policy_of(given.policy)
    assert isinstance(policy, RunPolicy)
    return loaded_run(policy, given, env_factory)


def specified_agent(spec: str) -> PolicyWorkerAgent:
    """Return an agent that makes its policy once it knows the spaces."""
    return PolicyWorkerAgent(lambda observation, action: policy_of(spec, observation, action))


def loaded_run(
    policy: RunPolicy, given: argparse.Namespace, env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return a run's policy. A batch without `--env-id` plays the evaluation environment of the run."""
    if env_factory is None and not given.interactive:
        env_factory = policy.make_env
    return LoadedWorker(PolicyWorkerAgent(lambda observation, action: policy), env_factory)


def main() -> int:
    """Run this worker."""
    return run_worker(worker_parser("policy_worker", "Play with any policy."), load)


if __name__ == "__main__":
    sys.exit(main())
