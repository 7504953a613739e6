"""Baselines: random actions, doing nothing, and policies that a file of Python defines.

python -m parllel.operators.operators_worker --env-id CartPole-v1 --policy random --seeds 0:50
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from parllel.operators.baseline_agents import NoopAgent, RandomAgent
from parllel.operators.worker_main import EnvFactory, Loaded, run_worker, worker_parser

_FILE = re.compile(r".+\.py(:\w+)?")


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> Loaded:
    """Return the baseline that `--policy` names.

    Raises:
        ValueError: if it names none.
    """
    policy = given.policy
    if policy == "random":
        return Loaded(RandomAgent(), env_factory)
    if policy == "noop":
        return Loaded(NoopAgent(), env_factory)
    if policy is None or not _FILE.fullmatch(policy):
        raise ValueError(
            f"--policy: expected random, noop, file.py or file.py:name, got {policy!r}; policy_worker takes "
            "other specifications"
        )
    # Here, as it imports three times as much as random actions need.
    from parllel.operators.policy_worker import specified_agent

    return Loaded(specified_agent(policy), env_factory)


def main() -> int:
    """Run this worker."""
    parser = worker_parser("operators_worker", "Play with a baseline.")
    parser.add_argument(
        "--random", action="store_const", const="random", dest="policy", help="as --policy random"
    )
    return run_worker(parser, load)


if __name__ == "__main__":
    sys.exit(main())
