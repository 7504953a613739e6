"""Whatever happens to workers, their environments, the buffer and the trainer, a plain model agrees."""

from __future__ import annotations

import pytest
from rollout_programs import KINDS, check_programs, short_waits


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize(("kind", "places"), KINDS)
@pytest.mark.few(2)
def test_a_plain_model_agrees(kind, places, recurrent, monkeypatch):
    short_waits(monkeypatch)
    check_programs(kind, places, recurrent, 16)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", ["rows", "ready"])
@pytest.mark.few(2)
def test_a_plain_model_agrees_with_processes(kind, recurrent):
    check_programs(kind, "real", recurrent, 4, workers=2, environments=3)
