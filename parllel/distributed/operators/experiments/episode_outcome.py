"""What came of one episode of an operator, or of one player of a game."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EpisodeOutcome:
    """What came of one episode.

    Attributes:
        status: "ended", or "failed".
        total_reward: sum of the rewards, of a failed episode as far as it came.
        episode_length: steps that were taken.
        terminated, truncated: how it ended.
        success: as the worker says; None if it does not.
        failure: why it failed, in one sentence.
        counts: of tokens and decisions, as DecisionCounts has them; empty of what is no language model.
        unplayed: record of a decision that nothing came of, as the episode failed: its tokens and answers.
        operator_id, player_id: of a game, whose rewards these are, and its seat.
        lost: whether a process died or does not answer, so that it has to be started again.
        contradictions: what the worker says of the episode that is not what was counted, a sentence each.
    """

    status: str
    total_reward: float
    episode_length: int
    terminated: bool = False
    truncated: bool = False
    success: bool | None = None
    failure: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    unplayed: Mapping[str, Any] = field(default_factory=dict)
    operator_id: str | None = None
    player_id: str | None = None
    lost: bool = False
    contradictions: tuple[str, ...] = ()
