from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import HOSTILE, Hostile

from parllel.distributed.operators import OperatorConfig, OperatorLauncher
from parllel.distributed.operators.operator_process_handle import OperatorProcessHandle


@pytest.fixture(scope="session", autouse=True)
def fonts(open_fonts: None) -> None:
    """Open them for all tests here."""


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[OperatorLauncher]:
    """A launcher whose folders are the test's own; closed after it."""
    with OperatorLauncher(tmp_path) as launcher:
        yield launcher


@pytest.fixture
def hostile(launcher: OperatorLauncher) -> Hostile:
    """A function that launches the hostile worker with words of its own."""

    def launch(*words: str, operator_id: str = "hostile", **options: Any) -> OperatorProcessHandle:
        config = OperatorConfig("program", operator_id, worker=[*HOSTILE, *words], **options)
        return launcher.launch_operator(config, f"run_{operator_id}", interactive=True)

    return launch
