from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fonts(open_fonts):
    """Plot once before the first test."""
