"""Checks that an operator's requirements are met: its worker, policy, environment and keys."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from parllel.distributed.operators.llm.llm_settings import check_llm_settings
from parllel.distributed.operators.llm_routing import OWN_SETTINGS, llm_worker
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.distributed.operators.workers.worker_environment import missing_keys
from parllel.policies.env_names import check_env_name

_FILE = re.compile(r"(?P<file>.+\.py)(:\w+)?")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:.*", re.DOTALL)
_GAME = re.compile(r"\w+(/\w+)+")  # a module; ids of environments have a hyphen
_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def check_run_id(operator_id: str, run_id: object) -> None:
    """Raise ValueError unless the run id can be used in file names."""
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id) or not run_id.strip("."):
        raise ValueError(
            f"operator {operator_id!r}: run_id: expected 1 to 128 letters, digits, dots, underscores and "
            f"hyphens, got {run_id!r}"
        )


def check_operator(config: OperatorConfig, env_id: str | None) -> None:
    """Check that everything an operator needs is present.

    env_id: id of the operator's environment, or of the game in which it is a player.

    Raises:
        ValueError: if no such environment exists, or the variable of a key is not set.
        FileNotFoundError: if a file, folder or program is missing.
        ImportError: if the environment's library is not installed.
    """
    name = f"operator {config.operator_id!r}"
    if config.operator_type == "program":
        _check_program(name, config.worker or ())
        return
    if env_id is None:
        raise ValueError(f"{name}: env_id: expected the id of an environment to play, got None")
    if config.env_id is not None:  # a player has none: the game was checked when it was made
        _check_env(name, config.env_id)
    if config.operator_type == "llm":
        _check_llm(name, config, env_id)
    elif config.policy is not None:
        _check_policy(name, config.operator_type, config.policy)
    missing = missing_keys(config, os.environ)
    if missing:
        raise ValueError(f"{name}: settings: the environment variable {missing[0]} is not set")


def _check_program(name: str, worker: Sequence[str]) -> None:
    if shutil.which(worker[0]) is None:
        raise FileNotFoundError(f"{name}: worker: program {worker[0]!r} not found")


def _check_env(name: str, env_id: str) -> None:
    if _GAME.fullmatch(env_id):
        raise ValueError(
            f"{name}: environment {env_id!r} is a game of several players; use a MultiAgentConfig"
        )
    try:
        check_env_name(env_id)
    except (ValueError, FileNotFoundError) as error:
        raise type(error)(f"{name}: {error}") from None


def _check_llm(name: str, config: OperatorConfig, env_id: str) -> None:
    try:
        check_llm_settings(config.settings, OWN_SETTINGS[llm_worker(env_id)])
    except ValueError as error:
        raise ValueError(f"{name}: settings: {error}") from None


def _check_policy(name: str, kind: str, policy: str) -> None:
    match = _FILE.fullmatch(policy)
    if match is not None:
        if not Path(match["file"]).is_file():
            raise FileNotFoundError(f"{name}: policy: file {match['file']!r} not found")
    elif kind == "rl":
        if not Path(policy).exists():
            raise FileNotFoundError(
                f"{name}: policy: expected a run folder or a model saved by CleanRL, got "
                f"{policy!r}, which does not exist"
            )
    elif not (policy in ("random", "noop") or _SCHEME.fullmatch(policy) or Path(policy).is_dir()):
        raise FileNotFoundError(
            f"{name}: policy: expected random, noop, file.py:name, a URL or a run folder, got "
            f"{policy!r}, but there is no such folder"
        )
