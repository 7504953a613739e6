"""What tests of handles and launchers share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle

LONG_S = 20.0
HOSTILE = [sys.executable, "-S", "-E", str(Path(__file__).with_name("hostile_worker.py"))]
Hostile = Callable[..., OperatorProcessHandle]
