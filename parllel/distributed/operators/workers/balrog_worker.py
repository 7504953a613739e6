"""Worker for a language model in MiniGrid or BabyAI: text observations, actions by name.

parllel operators worker balrog --env-id BabyAI-GoToRedBall-v0 --seeds 0:10
    --settings='{"model": "qwen3", "provider": "ollama"}'
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.llm_worker import llm_load, llm_setting_names
from parllel.distributed.operators.llm.minigrid_agent import MiniGridAgent
from parllel.distributed.operators.workers.worker_main import (
    EnvFactory,
    LoadedWorker,
    run_worker,
    worker_parser,
)

_WORKER = "balrog_worker"


def make(
    client: LlmClient,
    settings: dict[str, Any],
    given: argparse.Namespace,
    env_factory: EnvFactory | None,
) -> LoadedWorker:
    """Return the agent that prompts the model."""
    return LoadedWorker(MiniGridAgent(client, settings), env_factory)


def main(name: str = _WORKER) -> int:
    """Run this worker under its name, or under the alternative spelling."""
    parser = worker_parser(name, "Play MiniGrid or BabyAI with a language model.")
    return run_worker(parser, llm_load(_WORKER, make), settings=llm_setting_names(_WORKER))


if __name__ == "__main__":
    sys.exit(main())
