"""Ways to start a process, for tests of what depends on them."""

from __future__ import annotations

from typing import Any

import pytest

METHODS = ["fork", "forkserver", "spawn"]
# New interpreters take long to start. Contracts run under all methods in every run of the tests; what
# stands on them runs under `spawn` in `make soak`.
SPAWN_SOAKS: list[Any] = ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.soak)]
SENT_SPAWN_SOAKS = SPAWN_SOAKS[1:]  # those under which a child inherits no memory
