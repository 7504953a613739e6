"""The properties of samplers over many more setups than a run of all tests draws.

PARLLEL_SOAK_TRIALS (200) says how many of each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "samplers"))
import test_sampler_property as properties

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

TRIALS = int(os.environ.get("PARLLEL_SOAK_TRIALS", 200))
NAMES = [name for name in vars(properties) if name.startswith("test_")]


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_property_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = getattr(properties, name)
    many = settings(max_examples=TRIALS, suppress_health_check=[HealthCheck.too_slow])
    # Where hypothesis keeps the settings of a test: they cannot be given a second time.
    monkeypatch.setattr(check, "_hypothesis_internal_use_settings", many)
    check()
