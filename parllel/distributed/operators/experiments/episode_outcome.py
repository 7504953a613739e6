"""The outcome of one episode of an operator, or of one player of a game; tokens and decisions in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parllel.distributed.operators.workers.worker_agent import COUNTS

MAX_STEPS = 1_000_000  # of an episode without a limit, as for play_episodes
MIN_UNDERSTOOD = 0.5  # of a language model's decisions


@dataclass(frozen=True)
class EpisodeOutcome:
    """The outcome of one episode.

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


def step_record(
    reply: Mapping[str, Any],
    *,
    step: int,
    terminated: bool,
    truncated: bool,
    episode_reward: float,
    latency_s: float,
) -> dict[str, Any]:
    """Return the record of a step, from a worker's reply and what was counted."""
    action = reply.get("action")
    record = {
        "step": step,
        "action": action,
        "raw": reply.get("raw"),
        "parsed": reply.get("parsed"),
        "executed": action,
        "reward": reply["reward"],
        "terminated": terminated,
        "truncated": truncated,
        "episode_reward": episode_reward,
        "latency_s": latency_s,
    }
    if reply.get("decide_s") is not None:
        record["decide_s"] = reply["decide_s"]
    return record


class DecisionCounts:
    """Copy what replies say of decisions into records, and add it up.

    Attributes:
        sums: of the counts that came, by name; `decisions`, of a language model, and how many of these were
            `understood`. Empty of what is no language model.
    """

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def note(self, reply: Mapping[str, Any], record: dict[str, Any]) -> None:
        """Put what a reply says of its decision into the record of its step."""
        for name in COUNTS:
            count = reply.get(name)
            if count is not None:
                record[name] = count
                self._add(name, int(count))
        understood = reply.get("understood")
        if understood is not None:
            record["understood"] = understood
            self._add("decisions", 1)
            self._add("understood", int(understood))
        if reply.get("answers") is not None:
            record["answers"] = reply["answers"]

    def unplayed(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a decision that was not played, as its episode failed; {} if there is none."""
        record: dict[str, Any] = {}
        self.note(reply, record)
        if record and reply.get("raw") is not None:
            record["raw"] = reply["raw"]
        return record

    def _add(self, name: str, count: int) -> None:
        self.sums[name] = self.sums.get(name, 0) + count


def understanding_warning(
    operator_id: str, understood: int, decisions: int, least: float
) -> str | None:
    """Return a sentence if too few of a language model's decisions were understood."""
    if understood >= least * decisions:
        return None
    return (
        f"{operator_id}: {understood} of {decisions} decisions were understood, less than "
        f"{100 * least:g} %: its results say little of the model; telemetry has its answers"
    )
