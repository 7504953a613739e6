"""The board: cards of operators and games, reset, stepped and played by hand; independent of any page."""

from __future__ import annotations

__all__: list[str] = []
