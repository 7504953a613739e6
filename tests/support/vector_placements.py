"""The places in which a vector environment steps its environments."""

from __future__ import annotations

from typing import Any

PLACEMENTS: dict[str, dict[str, Any]] = {
    "here": {"parallel": False},
    "two workers": {"n_workers": 2, "n_main": 0, "start_method": "fork", "timeout_s": 20.0},
    "a worker and here": {"n_workers": 1, "n_main": 2, "start_method": "fork", "timeout_s": 20.0},
}
