"""Processes by identity, as they introduce themselves to other processes and machines."""

from __future__ import annotations

import os
import socket
from typing import Any

from parllel.system.processes.process_table import process_entry


def this_process() -> dict[str, Any]:
    """Return this process's machine, id and start, as JSON values."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": pid,
        "started": _started(pid),
    }


def is_gone(process: Any) -> bool:
    """Check whether a process of this machine has ended. False if that cannot be determined."""
    if not isinstance(process, dict) or _machine() is None or process.get("machine") != _machine():
        return False
    # A pid may be in use again, by a process with another start time.
    return _started(process.get("pid")) != process.get("started")


def process_name(process: Any) -> str:
    """Describe a process for messages."""
    known = process if isinstance(process, dict) else {}
    return f"process {known.get('pid')} on {known.get('host')}"


def _machine() -> str | None:
    """Return the scope of process ids: boot and pid namespace. None on systems that do not name them."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _started(pid: Any) -> int | None:
    """Return a process's start time in clock ticks since boot; None if it does not run, or is a zombie."""
    entry = process_entry(pid) if isinstance(pid, int) else None
    return entry.started if entry is not None and entry.runs else None
