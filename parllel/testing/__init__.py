"""What tests of parllel and of parts written for it share."""

from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import CrowdedEnv, DummyFaultError, FaultyEnv, MalformedEnv
from parllel.testing.leak_guard import LeakError, LeakGuard
from parllel.testing.process_table import (
    ProcessEntry,
    command_of,
    descendants,
    process_entry,
    process_runs,
)

__all__ = [
    "CountingEnv",
    "CrowdedEnv",
    "DummyFaultError",
    "FaultyEnv",
    "LeakError",
    "LeakGuard",
    "MalformedEnv",
    "ProcessEntry",
    "command_of",
    "descendants",
    "process_entry",
    "process_runs",
]
