"""Environment variables of a worker: its ids, and what it inherits from this process.

By default a worker inherits what `Program` passes on, which includes no secret. Keys are passed on by the
name of their variable, so they never appear in a command line, log or record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from parllel.distributed.operators.llm.llm_settings import key_variable
from parllel.distributed.operators.llm.provider import provider_named
from parllel.distributed.operators.local_url import is_local
from parllel.distributed.operators.protocol.operator_config import OperatorConfig

_PROXIES = ("ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SOCKS_PROXY")
# Trusted certificates for remote servers.
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
# Our own workers need their import path and the limits of the machine's resources.
_PYTHON = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def worker_variables(config: OperatorConfig, run_id: str, telemetry_dir: Path) -> dict[str, str]:
    """Return the variables to set in a worker. The operator's own `variables` take precedence."""
    variables = {
        "OPERATOR_ID": config.operator_id,
        "OPERATOR_RUN_ID": run_id,
        "TELEMETRY_DIR": str(telemetry_dir),
        # On import, mpi4py would otherwise wait for the other processes of an MPI job.
        "MPI4PY_RC_INITIALIZE": "0",
    }
    if config.operator_type == "program":
        variables["OPERATOR_ENV_KWARGS"] = json.dumps(dict(config.env_kwargs))
        if config.env_id is not None:
            variables["OPERATOR_ENV_ID"] = config.env_id
        if config.max_steps is not None:
            variables["OPERATOR_MAX_STEPS"] = str(config.max_steps)
    return {**variables, **config.variables}


def passed_variables(config: OperatorConfig) -> list[str]:
    """Return the names of this process's environment variables that a worker inherits.

    Proxy settings are passed to operators that ask a remote server, and withheld from those whose server is
    on this machine, which a proxy could not reach. Both spellings are covered.
    """
    patterns = [*config.passed, *key_variables(config)]
    if config.operator_type != "program":
        patterns += _PYTHON
    server = _server(config)
    if server is not None and not is_local(server):
        patterns += [*_PROXIES, *(name.lower() for name in _PROXIES), *_CERTIFICATES]
    names = [name for name in os.environ if any(fnmatchcase(name, p) for p in patterns)]
    if server is not None and is_local(server):
        names = [name for name in names if name.upper() not in _PROXIES]
    return names


def key_variables(config: OperatorConfig) -> list[str]:
    """Return the names of the variables that hold keys, from the operator's settings or its provider."""
    names = [str(value) for key, value in config.settings.items() if key.endswith("_env")]
    own = key_variable(config.settings) if config.operator_type == "llm" else None
    return names if own is None or own in names else [*names, own]


def missing_keys(config: OperatorConfig, environment: Mapping[str, str]) -> list[str]:
    """Return the names of the operator's key variables that are not set."""
    known = {*environment, *config.variables}
    return [name for name in key_variables(config) if name not in known]


def _server(config: OperatorConfig) -> str | None:
    """Return the URL of the server that an operator asks, or None."""
    if config.operator_type == "llm":
        provider = provider_named(config.settings.get("provider", "openai"))
        return str(config.settings.get("base_url") or provider.base_url)
    if config.policy is not None and "://" in config.policy:
        return config.policy
    return None
