"""Chess player that discusses each move with a language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.llm.answer import Answer, prompts_of, spent_on
from parllel.distributed.operators.llm.chess_dialogue import ChessDialogue
from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.llm_error import LlmError
from parllel.distributed.operators.llm.unparsed import unparsed_action
from parllel.distributed.operators.workers.worker_agent import Decision, WorkerAgent
from parllel.seeding import Seeds

TURNS, ATTEMPTS = 10, 3


class ChessModelAgent(WorkerAgent):
    """Finds each move in a dialogue with a model, which may ask for the board and the legal moves.

    Args:
        client: client that sends the questions. `close` closes it.
        settings: settings of the operator. The agent uses "turns" (answers per move), "attempts"
            (wrong answers that are corrected), "instructions" (text put first) and "unparsed".
        unparsed: default of the setting "unparsed", the rule for dialogues without a legal move.
            With None, the game handles such a move as an illegal action.
    """

    def __init__(
        self, client: LlmClient, settings: Mapping[str, Any], unparsed: str | None = None
    ) -> None:
        self._client = client
        self._options = {
            "attempts": settings.get("attempts", ATTEMPTS),
            "turns": settings.get("turns", TURNS),
            "instructions": settings.get("instructions", ""),
        }
        self._unparsed = settings.get("unparsed", unparsed)
        self._space: gym.Space[Any] | None = None
        self._generator = np.random.default_rng()

    def bind(
        self, observation_space: gym.Space[Any] | None, action_space: gym.Space[Any] | None
    ) -> None:
        """Set the spaces."""
        self._space = action_space

    def reset(self, seed: int | None) -> None:
        """Restart the random stream from the seed of an episode; None continues it."""
        if seed is not None:
            self._generator = Seeds(seed).generator("unparsed")

    def decide(self, observation: Any, info: Mapping[str, Any]) -> Decision:
        """Return the move found in a dialogue. The decision's tokens are the sum over all answers.

        Raises:
            ValueError: for a player of another game.
            LlmError: if the server does not answer, or if no legal move was found and "unparsed" is
                "error".
        """
        fen, moves, legal = (info.get(name) for name in ("text", "legal_moves", "legal_actions"))
        if fen is None or not moves or not legal:
            raise ValueError(
                "chess: expected a position and legal moves, got none; is this a different game?"
            )
        dialogue = ChessDialogue(fen, moves, **self._options)
        answers: list[Answer] = []
        n_sent = 0
        understood = None
        action: Any = None
        try:
            while not dialogue.ended:
                n_sent = len(dialogue.messages)
                answers.append(self._client.chat(dialogue.messages))
                dialogue.take(answers[-1].text, is_cut=answers[-1].is_cut)
            raw, action, understood = (
                answers[-1].text,
                dialogue.named_move,
                dialogue.move is not None,
            )
            if dialogue.move is not None:
                action = legal[moves.index(dialogue.move)]
            elif self._unparsed is not None:
                action = unparsed_action(self._unparsed, self._space, legal, self._generator, raw)
        except LlmError as error:
            # Whatever failed, the answers so far were paid for: the error carries them into the records.
            answers += [] if error.answer is None else [error.answer]
            if answers:
                sent = dialogue.messages[:n_sent]
                error.decision = _decision(None, answers, understood, sent)
            raise
        # Without the correction of the last answer, which nobody was sent.
        sent = dialogue.messages[:n_sent]
        return _decision(action, answers, understood, sent, dialogue.move)

    def close(self) -> None:
        """Close the client. Idempotent."""
        self._client.close()


def _decision(
    action: Any,
    answers: list[Answer],
    understood: bool | None,
    sent: list[dict[str, str]],
    move: str | None = None,
) -> Decision:
    raw, spent = answers[-1].text, spent_on(answers)
    return Decision(action, raw, move, understood=understood, prompts=prompts_of(sent), **spent)
