"""A player of PettingZoo's chess: random moves, or a function that is given the position and the legal moves.

python -m parllel.operators.chess_worker --policy file.py:name --interactive
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parllel.operators.baseline_agents import RandomAgent
from parllel.operators.worker_agent import Decision, WorkerAgent
from parllel.operators.worker_main import EnvFactory, Loaded, run_worker, worker_parser

_FILE = re.compile(r"(?P<file>.+\.py)(:(?P<name>\w+))?")


class ChessAgent(WorkerAgent):
    """Let a function choose moves in the words of chess players.

    Args:
        choose: called with the position in FEN and the legal moves in UCI; returns a move in UCI.
    """

    def __init__(self, choose: Callable[[str, Sequence[str]], str]) -> None:
        self._choose = choose

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return the function's move; one that is not legal is left to the rule of the game.

        Raises:
            ValueError: for a player of another game.
        """
        fen, moves, legal = (info.get(name) for name in ("text", "legal_moves", "legal_actions"))
        if fen is None or not moves or not legal:
            raise ValueError(
                "chess: expected a position and legal moves, got none; is this another game?"
            )
        said = self._choose(fen, list(moves))
        if said not in moves:
            return Decision(str(said), raw=str(said))
        return Decision(legal[moves.index(said)], raw=said, parsed=said)


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> Loaded:
    """Return what chooses moves, as `--policy` names it.

    Raises:
        ValueError: if it names nothing that plays chess.
        FileNotFoundError: if there is no such file.
    """
    if given.policy == "random":
        return Loaded(RandomAgent(), None)
    match = _FILE.fullmatch(given.policy or "")
    if match is None:
        raise ValueError(
            f"--policy: expected random, file.py or file.py:name, got {given.policy!r}; policy_worker takes "
            "policies that act on observations"
        )
    # Here, as it imports three times as much as random moves need.
    from parllel.policies import policy_in_file

    return Loaded(ChessAgent(policy_in_file(Path(match["file"]), match["name"])), None)


def main() -> int:
    """Run this worker."""
    return run_worker(worker_parser("chess_worker", "Play PettingZoo's chess."), load)


if __name__ == "__main__":
    sys.exit(main())
