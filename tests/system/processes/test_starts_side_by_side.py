from __future__ import annotations

import child_targets as targets
import pytest
from other_starts import other_starts
from starting import LONG_S

from parllel.system.processes.child import Child


def test_variables_are_read_while_other_threads_start_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PARLLEL_TEST", "one of these")
    with other_starts():
        for _ in range(30):
            child = Child(targets.tell_environment, start_method="forkserver")
            assert child.receive(LONG_S, "telling").endswith(b",one of these")
            child.end()
