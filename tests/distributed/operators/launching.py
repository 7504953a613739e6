"""What tests that start workers share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle

LONG_S = 20.0
HOSTILE = [sys.executable, "-S", "-E", str(Path(__file__).with_name("hostile_worker.py"))]
Hostile = Callable[..., OperatorProcessHandle]


def run_worker(module: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return the result of a worker that plays by itself."""
    command = [sys.executable, "-m", f"parllel.distributed.operators.workers.{module}", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=50, env=environment, check=False
    )
