r"""Any specification of an agent that `parllel.policies` understands: a run, a file, a URL, an action.

python -m parllel.distributed.operators.workers.policy_worker \
    --env-id CartPole-v1 --policy http://127.0.0.1:8000 --seeds 0:50
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from parllel.distributed.operators.workers.policy_agent import PolicyWorkerAgent
from parllel.distributed.operators.workers.worker_main import (
    EnvFactory,
    Loaded,
    run_worker,
    worker_parser,
)
from parllel.policies.run_policy import RunPolicy
from parllel.policies.specification import code_of, policy_of


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> Loaded:
    """Return the policy that `--policy` specifies; that of a run is loaded here.

    Raises: as `policy_of` does.
    """
    if given.policy is None:
        raise ValueError("--policy: expected a specification of what decides, got none")
    code = code_of(given.policy)
    if code is None or not code.is_dir():
        return Loaded(specified_agent(given.policy), env_factory)
    policy = policy_of(given.policy)
    assert isinstance(policy, RunPolicy)
    return loaded_run(policy, given, env_factory)


def specified_agent(spec: str) -> PolicyWorkerAgent:
    """Return an agent that makes its policy when it knows the spaces."""
    return PolicyWorkerAgent(lambda observation, action: policy_of(spec, observation, action))


def loaded_run(
    policy: RunPolicy, given: argparse.Namespace, env_factory: EnvFactory | None
) -> Loaded:
    """Return the policy of a run; a batch without an environment plays that of the run's evaluation."""
    if env_factory is None and not given.interactive:
        env_factory = policy.make_env
    return Loaded(PolicyWorkerAgent(lambda observation, action: policy), env_factory)


def main() -> int:
    """Run this worker."""
    return run_worker(worker_parser("policy_worker", "Play with any policy."), load)


if __name__ == "__main__":
    sys.exit(main())
