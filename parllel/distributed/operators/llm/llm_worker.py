"""Common parts of workers for language models: loading the settings and the client."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.llm_settings import (
    LLM_SETTINGS,
    check_llm_settings,
    client_of,
)
from parllel.distributed.operators.llm_routing import OWN_SETTINGS
from parllel.distributed.operators.workers.worker_main import EnvFactory, Load, LoadedWorker

# Makes what a worker serves, given a client, the settings, the arguments, and the environment's factory.
MakeServed = Callable[
    [LlmClient, dict[str, Any], argparse.Namespace, EnvFactory | None], LoadedWorker
]


def llm_load(worker: str, make: MakeServed) -> Load:
    """Return the `load` function of a language model for `run_worker`.

    worker: module name of the worker. It determines which further settings are accepted.

    Raises, from the returned function:
        ValueError: for a --policy, an invalid setting, or a key that is not set.
    """

    def load(
        given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
    ) -> LoadedWorker:
        if given.policy is not None:
            raise ValueError(
                "--policy: expected no policy, because the settings name the model, got "
                f"{given.policy!r}"
            )
        try:
            check_llm_settings(settings, OWN_SETTINGS[worker])
        except ValueError as error:
            raise ValueError(f"settings: {error}") from None
        return make(client_of(settings, os.environ), settings, given, env_factory)

    return load


def llm_setting_names(worker: str) -> tuple[str, ...]:
    """Return the names of all settings of a worker for language models."""
    return (*LLM_SETTINGS, *OWN_SETTINGS[worker])
