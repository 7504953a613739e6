"""The board: operators and games as cards that are reset, stepped and played by hand, without any page."""

from __future__ import annotations

__all__: list[str] = []
