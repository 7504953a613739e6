r"""Worker for baselines, and for language models in any environment or game.

parllel operators worker operators \
    --env-id CartPole-v1 --policy random --seeds 0:50
parllel operators worker operators \
    --env-id FrozenLake-v1 --settings '{"model": "gpt-5-mini"}'

--policy is random, noop, or file.py:name. Without it, --settings must name a language model.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from parllel.distributed.operators.llm.llm_settings import LLM_SETTINGS
from parllel.distributed.operators.llm_routing import OWN_SETTINGS
from parllel.distributed.operators.workers.baseline_agents import NoopWorkerAgent, RandomWorkerAgent
from parllel.distributed.operators.workers.worker_main import (
    EnvFactory,
    LoadedWorker,
    run_worker,
    worker_parser,
)

if TYPE_CHECKING:
    from parllel.distributed.operators.llm.llm_client import LlmClient

_FILE = re.compile(r".+\.py(:\w+)?")


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the baseline named by `--policy`, or the language model configured in the settings.

    Raises:
        ValueError: unless exactly one of them is given.
    """
    policy = given.policy
    if settings:
        # Imported here: without it, baselines start in a third of the time.
        from parllel.distributed.operators.llm.llm_worker import llm_load

        return llm_load("operators_worker", _model)(given, settings, env_factory)
    if policy == "random":
        return LoadedWorker(RandomWorkerAgent(), env_factory)
    if policy == "noop":
        return LoadedWorker(NoopWorkerAgent(), env_factory)
    if policy is None or not _FILE.fullmatch(policy):
        raise ValueError(
            f"--policy: expected random, noop, file.py or file.py:name, got {policy!r}; use policy_worker "
            "for other specifications, or name a language model in --settings"
        )
    # Imported here: it takes three times as long as everything that random actions need.
    from parllel.distributed.operators.workers.policy_worker import specified_agent

    return LoadedWorker(specified_agent(policy), env_factory)


def _model(
    client: LlmClient,
    settings: dict[str, Any],
    given: argparse.Namespace,
    env_factory: EnvFactory | None,
) -> LoadedWorker:
    from parllel.distributed.operators.llm.env_agent import EnvAgent
    from parllel.distributed.operators.workers.text_view import TextView

    if env_factory is None:
        return LoadedWorker(EnvAgent(client, settings), None)
    view = TextView(env_factory, given.env_id, given.env_kwargs, prefers_text=True)
    return LoadedWorker(EnvAgent(client, settings, view), view.make)


def main() -> int:
    """Run this worker."""
    parser = worker_parser("operators_worker", "Play with a baseline or a language model.")
    parser.add_argument(
        "--random", action="store_const", const="random", dest="policy", help="as --policy random"
    )
    return run_worker(parser, load, settings=(*LLM_SETTINGS, *OWN_SETTINGS["operators_worker"]))


if __name__ == "__main__":
    sys.exit(main())
