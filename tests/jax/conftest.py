"""Before the first test, JAX starts its threads, which stay until the process ends."""

from __future__ import annotations

import os
from pathlib import Path

# Many tests compile the same functions, in this process and others. Before jax is imported.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[2] / "build" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def started():
    jax.devices("cpu")
