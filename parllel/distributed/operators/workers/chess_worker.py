r"""Worker for a player of PettingZoo's chess: random moves, a function of the position, or a language model.

parllel operators worker chess \
    --policy file.py:name --seeds 0:50
parllel operators worker chess \
    --settings='{"model": "qwen3", "provider": "ollama"}' --seeds 0:4

With --interactive it plays games that run in the driver. Otherwise it plays against random moves, as white
for even seeds.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from parllel.distributed.operators.llm.llm_settings import LLM_SETTINGS
from parllel.distributed.operators.llm_routing import OWN_SETTINGS
from parllel.distributed.operators.workers.baseline_agents import RandomWorkerAgent
from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent
from parllel.distributed.operators.workers.worker_main import (
    EnvFactory,
    LoadedWorker,
    run_worker,
    worker_parser,
)

if TYPE_CHECKING:
    from parllel.distributed.operators.llm.llm_client import LlmClient

CHESS = "pettingzoo/classic/chess_v6"
_WORKER = "chess_worker"
_FILE = re.compile(r"(?P<file>.+\.py)(:(?P<name>\w+))?")


class ChessAgent(WorkerAgent):
    """Chooses moves by a function that works in chess notation.

    Args:
        choose: function that takes the position in FEN and the legal moves in UCI, and returns a
            move in UCI.
    """

    def __init__(self, choose: Callable[[str, Sequence[str]], str]) -> None:
        self._choose = choose

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return the move that the function chose. The game applies its own rule to an illegal move.

        Raises:
            ValueError: if the observation is not from a chess game.
        """
        fen, moves, legal = (info.get(name) for name in ("text", "legal_moves", "legal_actions"))
        if fen is None or not moves or not legal:
            raise ValueError(
                "chess: expected a position and legal moves, got none; is this a different game?"
            )
        move = self._choose(fen, list(moves))
        if move not in moves:
            return Decision(str(move), raw=str(move))
        return Decision(legal[moves.index(move)], raw=move, parsed=move)


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the player: the language model configured in the settings, or the policy named by `--policy`.

    Raises:
        ValueError: if neither plays chess, or for invalid settings.
        FileNotFoundError: if the file of the policy does not exist.
    """
    if given.env_id not in (None, CHESS):
        raise ValueError(f"--env-id: expected {CHESS} or none, got {given.env_id!r}")
    if not given.interactive:
        given.env_id = CHESS  # for the records
    if settings:
        # Imported here: the other players do not need it.
        from parllel.distributed.operators.llm.llm_worker import llm_load

        return llm_load(_WORKER, _model)(given, settings, env_factory)
    return LoadedWorker(_agent(given.policy), None if given.interactive else against_random)


def against_random() -> gym.Env[Any, Any]:
    """Return a chess environment whose opponent plays random moves."""
    # Imported here: interactive players do not need it, as their game runs in the driver.
    from parllel.distributed.operators.games.player_spaces import make_game_env
    from parllel.distributed.operators.workers.game_against_random import GameAgainstRandom

    return GameAgainstRandom(make_game_env(CHESS))


def _agent(policy: str | None) -> WorkerAgent:
    if policy == "random":
        return RandomWorkerAgent()
    match = _FILE.fullmatch(policy or "")
    if match is None:
        raise ValueError(
            f"--policy: expected random, file.py or file.py:name, got {policy!r}; use policy_worker for "
            "policies that act on observations"
        )
    # Imported here: it takes three times as long as everything that random moves need.
    from parllel.policies.policy_file import policy_in_file

    return ChessAgent(policy_in_file(Path(match["file"]), match["name"]))


def _model(
    client: LlmClient,
    settings: dict[str, Any],
    given: argparse.Namespace,
    env_factory: EnvFactory | None,
) -> LoadedWorker:
    from parllel.distributed.operators.llm.chess_agent import ChessModelAgent

    if given.interactive:
        # Illegal moves are left to the game's rule.
        return LoadedWorker(ChessModelAgent(client, settings), None)
    return LoadedWorker(ChessModelAgent(client, settings, "random"), against_random)


def main() -> int:
    """Run this worker."""
    parser = worker_parser(_WORKER, "Play PettingZoo's chess.")
    return run_worker(parser, load, settings=(*LLM_SETTINGS, *OWN_SETTINGS[_WORKER]))


if __name__ == "__main__":
    sys.exit(main())
