"""Before the first test, JAX starts its threads, which stay until the process ends."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def started():
    jax.devices("cpu")
