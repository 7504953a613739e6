"""A board of operators that a person holds and lets go, without a page."""

from parllel.operators.board.players import Players
from parllel.operators.board.questions import Questions

__all__ = ["Players", "Questions"]
