"""A language model that plays MiniGrid or BabyAI: what the agent sees in words, and an action by its name.

python -m parllel.operators.balrog_worker --env-id BabyAI-GoToRedBall-v0 --seeds 0:10
    --settings='{"model": "qwen3", "provider": "ollama"}'
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from parllel.operators.llm.llm_settings import LLM_SETTINGS, check_llm_settings, client_of
from parllel.operators.worker_main import EnvFactory, Loaded, run_worker, worker_parser


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> Loaded:
    """Return what asks the model of the settings.

    Raises:
        ValueError: for settings that cannot be, and for a policy, as the model decides.
    """
    if given.policy is not None:
        raise ValueError(
            f"--policy: expected none, as the model of --settings decides; got {given.policy!r}"
        )
    check_llm_settings(settings)
    # Here, as what cannot be is said without them.
    from parllel.operators.llm.minigrid_agent import MiniGridAgent

    return Loaded(MiniGridAgent(client_of(settings, os.environ), settings), env_factory)


def main(name: str = "balrog_worker") -> int:
    """Run this worker, under its name or the other spelling of it."""
    parser = worker_parser(name, "Let a language model play MiniGrid or BabyAI.")
    return run_worker(parser, load, settings=LLM_SETTINGS)


if __name__ == "__main__":
    sys.exit(main())
