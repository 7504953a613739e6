"""The board: operators and games as cards that are reset, stepped and played by hand, without any page."""

from __future__ import annotations

from parllel.distributed.operators.board.board import Board
from parllel.distributed.operators.board.card import Frame
from parllel.distributed.operators.board.errors import UnknownCardError
from parllel.distributed.operators.board.players import Players
from parllel.distributed.operators.board.questions import Questions

__all__ = ["Board", "Frame", "Players", "Questions", "UnknownCardError"]
