"""What tests of parllel and of parts written for it share."""

from parllel.testing.leak_guard import LeakError, LeakGuard
from parllel.testing.process_table import (
    ProcessEntry,
    command_of,
    descendants,
    process_entry,
    process_runs,
)

__all__ = [
    "LeakError",
    "LeakGuard",
    "ProcessEntry",
    "command_of",
    "descendants",
    "process_entry",
    "process_runs",
]
