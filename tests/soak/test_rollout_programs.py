"""Hundreds of programs of what may happen to rollout workers, compared with a plain model.

PARLLEL_SOAK_TRIALS (200) says how many of each kind.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "distributed" / "rollouts"))
from rollout_programs import KINDS, check_programs, short_waits

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

TRIALS = int(os.environ.get("PARLLEL_SOAK_TRIALS", 200))


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize(("kind", "places"), KINDS)
def test_a_plain_model_agrees(
    kind: str, places: str, recurrent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_waits(monkeypatch)
    check_programs(kind, places, recurrent, TRIALS)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", ["rows", "ready"])
def test_a_plain_model_agrees_with_processes(kind: str, recurrent: bool) -> None:
    check_programs(kind, "real", recurrent, TRIALS // 4)
