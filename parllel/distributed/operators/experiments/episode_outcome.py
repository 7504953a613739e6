"""Outcome of one episode of an operator, or of a player of a game, with its tokens and decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parllel.distributed.operators.workers.worker_agent import COUNTS

MAX_STEPS = 1_000_000  # of an episode without a limit, as for play_episodes
MIN_UNDERSTOOD = 0.5  # of a language model's decisions


@dataclass(frozen=True)
class EpisodeOutcome:
    """Outcome of one episode.

    Attributes:
        status: "ended" or "failed".
        total_reward: sum of the rewards. For a failed episode, the sum until it failed.
        episode_length: the number of steps taken.
        terminated, truncated: how the episode ended.
        success: whether the worker reports success. None if it does not report this.
        failure: why the episode failed, in one sentence.
        counts: numbers of tokens and decisions, see DecisionCounts. Empty without a language model.
        unplayed: record of a decision that was not played because the episode failed: its tokens and answers.
        operator_id, player_id: in a game, the operator whose rewards these are, and its seat.
        lost: whether a process died or does not answer, so that it must be restarted.
        contradictions: sentences on values that the worker reported and that differ from our
            counts.
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
    """Return the record of a step, from a worker's reply and the driver's own counts."""
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
    """Copies the decision fields of replies to records, and adds them up.

    Attributes:
        sums: sums of the reported counts, keyed by name. `decisions` is the number of decisions of
            a language model, and `understood` the number that were understood. Empty without a
            language model.
    """

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    def note(self, reply: Mapping[str, Any], record: dict[str, Any]) -> None:
        """Copy a reply's decision fields to the record of its step, and add up its counts."""
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
        for name in ("prompts", "answers"):
            if reply.get(name) is not None:
                record[name] = reply[name]

    def unplayed(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a decision that was not played because its episode failed.

        Returns {} if there is none.
        """
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
    """Return a warning if too few of a language model's decisions were understood, else None."""
    if understood >= least * decisions:
        return None
    return (
        f"{operator_id}: {understood} of {decisions} decisions were understood, less than "
        f"{100 * least:g} %: its results say little of the model; telemetry has its answers"
    )
