"""Card of one operator or game: what it shows, and what is requested of it.

    the card's thread     begins, stepped, ended, drew       what has happened
    requests              playing, permits, abandoned, ...   what is requested
    any thread            as_json                            all under the board's lock

new -> starting -> ready <-> thinking -> ended, failed or died;  a reset leads back to starting, except from
died
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from parllel.distributed.operators.board.board_condition import BoardCondition
from parllel.distributed.operators.board.players import LAST, Players
from parllel.distributed.operators.board.questions import Questions
from parllel.distributed.operators.experiments.episode_outcome import EpisodeOutcome
from parllel.distributed.operators.protocol.multi_agent_config import (
    AnyConfig,
    MultiAgentConfig,
    operators_of,
)

Record = dict[str, Any]
_MAX_CHARACTERS = 2000  # of a message


@dataclass(frozen=True)
class Frame:
    """A picture of an environment.

    Attributes:
        number: increases with each picture of a card.
        episode: number of the episode that it shows.
        step: number of steps taken in the episode.
        png: contents of a PNG file.
    """

    number: int
    episode: int
    step: int
    png: bytes


class Totals:
    """Totals over a card's episodes since it was added. For a game, totals of its first player."""

    def __init__(self) -> None:
        self.n_ended = self.n_failed = 0
        self._reward, self._length = 0.0, 0
        self._tokens: int | None = None
        self._decisions = self._understood = 0

    def add(self, outcomes: list[EpisodeOutcome]) -> None:
        """Add an episode."""
        for outcome in outcomes:
            if "tokens" in outcome.counts:
                self._tokens = (self._tokens or 0) + outcome.counts["tokens"]
            self._decisions += outcome.counts.get("decisions", 0)
            self._understood += outcome.counts.get("understood", 0)
        if any(outcome.status != "ended" for outcome in outcomes):
            self.n_failed += 1
            return
        self.n_ended += 1
        self._reward += outcomes[0].total_reward
        self._length += outcomes[0].episode_length

    def as_json(self) -> Record:
        """Return the totals as JSON values."""
        n = self.n_ended
        return {
            "n_ended": n,
            "n_failed": self.n_failed,
            "mean_reward": self._reward / n if n else None,
            "mean_length": self._length / n if n else None,
            "tokens": self._tokens,
            "decisions": self._decisions,
            "understood": self._understood,
        }


class Card:
    """One operator or game on a board.

    The caller holds the board's lock, except for methods that acquire it.

    Args:
        config: configuration of the operator or game.
        condition: the board's lock.

    Attributes:
        status, message: status and message shown on the card; docs/operators_dashboard.md lists
            them.
        is_within: whether an episode has started and not ended.
        playing: whether the card takes steps by itself.
        permits: number of steps that the card may take while it is not playing.
        is_stepping: whether the next step of all cards waits for this card.
        awaits_others: whether a lock-step experiment holds the card until other cards have ended
            their episodes.
        has_people: whether a person chooses its actions, or those of a player of its game.
        abandoned: whether to abandon the current episode and start another.
        wanted: number and seed of the episode to start next.
        frame: the newest picture.
        questions: open questions to people; guarded by their own lock.
        players: the players of a game, guarded by their own lock. None for an operator.
    """

    def __init__(self, config: AnyConfig, condition: BoardCondition) -> None:
        self.config, self._condition = config, condition
        self.status = "new"
        self.message: str | None = None
        self._since = time.time()
        self.number: int | None = None
        self.seed: int | None = None
        self.is_within = self.playing = self.abandoned = False
        self.wanted: tuple[int, int] | None = None
        self.permits = 0
        self.is_stepping = self.awaits_others = False
        self.has_people = any(
            operator.operator_type == "human" for operator in operators_of([config])
        )
        self.frame: Frame | None = None
        self.text: str | None = None
        self.questions = Questions(self._asked)
        self.players = Players(config) if isinstance(config, MultiAgentConfig) else None
        self._totals = Totals()
        self._begin()

    @property
    def card_id(self) -> str:
        """The operator_id."""
        return self.config.operator_id

    @property
    def kind(self) -> str:
        """Return "operator" or "game"."""
        return "game" if isinstance(self.config, MultiAgentConfig) else "operator"

    def _note(self) -> None:
        with self._condition:
            self._condition.note()

    def _asked(self) -> None:
        with self._condition:
            # Called by the card's thread, or by the request that answers, without the lock of the questions.
            if self.questions.is_open:
                if self.status == "thinking":
                    self.now("waiting")
            elif self.status == "waiting":
                self.now("thinking")
            self._condition.note()

    def now(self, status: str, message: str | None = None) -> None:
        """Set status and message."""
        if (status, message) != (self.status, self.message):
            if status != self.status:
                self._since = time.time()
            self.status = status
            self.message = None if message is None else message[:_MAX_CHARACTERS]
            self._condition.note()

    # ------------------------------------------------------------------ what has happened

    def _begin(self) -> None:
        self._step, self._reward, self._episode_reward = 0, None, 0.0
        self._terminated = self._truncated = False
        self._last: Record | None = None
        self._contradictions: tuple[str, ...] = ()

    def begins(self, episode: int, seed: int) -> None:
        """Record that an episode starts."""
        with self._condition:
            self._begin()
            self.number, self.seed = episode, seed
            self.is_within = True
            self.now("starting")
            self._condition.note()

    def stepped(self, record: Record) -> None:
        """Record a step, or one player's part in it."""
        with self._condition:
            self._step = record["step"]
            self._reward, self._episode_reward = record["reward"], record["episode_reward"]
            self._terminated, self._truncated = record["terminated"], record["truncated"]
            self._last = {name: record.get(name) for name in LAST}
            self._contradictions = record.get("contradictions", self._contradictions)
            if self.players is not None:
                # A game shows the return of its first player; the others' are in their rows.
                self.players.record(record)
                self._reward, self._episode_reward = None, self.players.first_total
            self._condition.note()

    def notice(self, operator_id: str, seat: str, status: str) -> None:
        """Record the status of a player of a game."""
        if self.players is not None:
            self.players.notice(operator_id, seat, status)
            self._note()

    def ended(self, outcomes: list[EpisodeOutcome]) -> None:
        """Record the outcomes of the episode."""
        first = outcomes[0]
        failures = list(dict.fromkeys(o.failure for o in outcomes if o.failure is not None))
        with self._condition:
            self.is_within = self.is_stepping = False
            self.permits = 0
            self._totals.add(outcomes)
            self._terminated, self._truncated = first.terminated, first.truncated
            self._contradictions = tuple(s for outcome in outcomes for s in outcome.contradictions)
            if any(outcome.lost for outcome in outcomes):
                if self.players is not None:
                    # The session ends the other players' workers along with it.
                    self.players.died([o.operator_id for o in outcomes if o.lost])
                self.now("died", "; ".join(failures))
            elif failures:
                self.now("failed", "; ".join(failures))
            else:
                self.now("ended")
            self._condition.note()

    def leaves(self) -> None:
        """Record that the operator or game plays no further episodes."""
        with self._condition:
            self.is_within = self.playing = self.is_stepping = False
            self._condition.note()

    def drew(self, episode: int, step: int, png: bytes) -> None:
        """Replace the newest picture."""
        with self._condition:
            number = 1 if self.frame is None else self.frame.number + 1
            self.frame = Frame(number, episode, step, png)
            self._condition.note()

    # ------------------------------------------------------------------ what is shown

    def as_json(self) -> Record:
        """Return what a page shows, as JSON values."""
        config = self.config
        single = None if isinstance(config, MultiAgentConfig) else config
        return {
            "id": self.card_id,
            "kind": self.kind,
            "operator_type": None if single is None else single.operator_type,
            "env_id": config.env_id,
            "policy": None if single is None else single.decider,
            "status": self.status,
            "since": self._since,
            "message": "; ".join(filter(None, (self.message, *self._contradictions))) or None,
            "episode": self.number,
            "seed": self.seed,
            "step": self._step,
            "reward": self._reward,
            "episode_reward": self._episode_reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "last": self._last,
            "totals": self._totals.as_json(),
            "frame": None if self.frame is None else self.frame.number,
            "text": self.text,
            "questions": self.questions.as_json(),
            "players": None if self.players is None else self.players.as_json(),
        }
