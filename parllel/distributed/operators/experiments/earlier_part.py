"""Records of a killed or stopped experiment, so that finished episodes are not played again.

telemetry/<run_id>_episodes.jsonl       finished episodes are kept; of a game those with a record per player
telemetry/<run_id>_steps.jsonl          their steps are kept; all others are cut off, and played again
telemetry/<run_id>_interrupted.jsonl    cut-off steps that used tokens, which count towards the budget
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from parllel.distributed.operators.experiments.telemetry import (
    EPISODES,
    STEPS,
    read_telemetry,
    telemetry_path,
)

Round = tuple[int, int, int | None]
INTERRUPTED = "interrupted"
# Settings that may differ when an experiment is resumed; the script is recorded only for people to read.
_MAY_CHANGE = ("budget", "script")


@dataclass(frozen=True)
class PlayedPart:
    """The finished episodes of one operator or game in an experiment that is resumed.

    Attributes:
        n_done, n_failed: the numbers of finished and of failed episodes.
        n_steps: the number of step records in these episodes.
        rewards: the total rewards of the episodes that did not fail; in a game, those of the first player.
        n_restarts: how often the worker was restarted.
        lost: why the worker was lost in the last episode; None if it was not.
        used: the tokens used since the last start of the worker, keyed by operator_id.
        paid: the records of these episodes and of the interrupted steps, with the tokens that they used.
    """

    n_done: int = 0
    n_failed: int = 0
    n_steps: int = 0
    rewards: tuple[float, ...] = ()
    n_restarts: int = 0
    lost: str | None = None
    used: Mapping[str, int] = field(default_factory=dict)
    paid: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


class _StepLine(msgspec.Struct):
    episode: int
    tokens: int | None = None
    calls: int | None = None


def earlier_part(folder: Path, run_id: str, rounds: Sequence[Round], n_players: int) -> PlayedPart:
    """Return the finished part of the rounds, and remove unfinished episodes from the telemetry.

    Args:
        folder: the folder of the telemetry.
        n_players: the number of records per episode.

    Raises:
        ValueError: if the telemetry is damaged or belongs to other rounds. The message names the file.
    """
    path = telemetry_path(folder, run_id, EPISODES)
    records = list(read_telemetry(path)) if path.exists() else []
    n_done = len(records) // n_players
    kept = records[: n_done * n_players]
    for i, record in enumerate(kept):
        found = (record.get("episode"), record.get("seed"))
        expected = rounds[i // n_players][:2] if i // n_players < len(rounds) else None
        if found != expected:
            raise ValueError(
                f"{path}: line {i + 1}: expected the episode and seed {expected}, got {found}; the "
                "file is damaged or belongs to another experiment"
            )
    n_steps = _cut_steps(folder, run_id, n_done)
    if path.exists():
        with open(path, "rb") as file:
            end = sum(len(file.readline()) for _ in kept)
        os.truncate(path, end)
    interrupted = telemetry_path(folder, run_id, INTERRUPTED)
    paid = [*kept, *(read_telemetry(interrupted) if interrupted.exists() else ())]
    episodes = [kept[i * n_players : (i + 1) * n_players] for i in range(n_done)]
    ended = [
        players for players in episodes if all(record["status"] == "ended" for record in players)
    ]
    last = kept[-n_players:]
    lost = [str(record.get("failure")) for record in last if record.get("lost")]
    return PlayedPart(
        n_done,
        n_done - len(ended),
        n_steps,
        tuple(players[0]["total_reward"] or 0.0 for players in ended),
        last[0]["restarts"] if last else 0,
        lost[0] if lost else None,
        {} if lost else _used(kept),
        tuple(paid),
    )


def _used(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    used: Counter[str] = Counter()
    for record in records:
        if record["restarts"] == records[-1]["restarts"]:
            # Of the current worker only: an earlier one took its count with it.
            used[record["operator_id"]] += record.get("tokens") or 0
    return {name: n for name, n in used.items() if n}


def note_interrupted(folder: Path, run_id: str, record: Mapping[str, Any]) -> None:
    """Record a decision that used tokens in an episode that was never recorded."""
    with open(telemetry_path(folder, run_id, INTERRUPTED), "ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")


def _cut_steps(folder: Path, run_id: str, n_done: int) -> int:
    """Cut off the steps of unfinished episodes. Returns the number of remaining steps."""
    path = telemetry_path(folder, run_id, STEPS)
    if not path.exists():
        return 0
    decode = msgspec.json.Decoder(_StepLine).decode
    n_steps, end = 0, None
    with open(path, "rb") as file:
        at = 0
        for step in read_telemetry(path, decode):
            line = file.readline()
            if step.episode >= n_done:
                end = at
                break
            n_steps += 1
            at += len(line)
        file.seek(at)
        rest = file.read() if end is not None else b""
    whole = [line for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    steps = [(line, decode(line)) for line in whole]
    paid = [line for line, step in steps if step.tokens is not None or step.calls is not None]
    if paid:
        # Saved before they are cut off: killed in between, they count twice rather than never.
        with open(telemetry_path(folder, run_id, INTERRUPTED), "ab") as kept:
            kept.write(b"".join(paid))
    os.truncate(path, at)
    return n_steps


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe the differences between the settings of two experiments, given as JSON values.

    Settings that an earlier version did not record are not compared.
    """
    found: list[str] = []
    for name in now:
        if name in before and name not in _MAY_CHANGE and before[name] != now[name]:
            if name == "operators":
                found += _changed_operators(before[name], now[name])
            else:
                found.append(f"{name}: {before[name]!r} before, {now[name]!r} now")
    return found


def _changed_operators(before: Sequence[Any], now: Sequence[Any]) -> list[str]:
    old = {config["operator_id"]: config for config in before}
    new = {config["operator_id"]: config for config in now}
    found = [f"operator {name!r}: none now" for name in old if name not in new]
    found += [f"operator {name!r}: none before" for name in new if name not in old]
    for name in new:
        if name in old:
            found += _changed(f"operator {name!r}", old[name], new[name])
    return found or ["operators: in another order"]


def _changed(where: str, before: Any, now: Any) -> list[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = dict.fromkeys([*before, *now])
        return [
            difference
            for name in names
            for difference in _changed(f"{where}: {name}", before.get(name), now.get(name))
        ]
    return [] if before == now else [f"{where}: {before!r} before, {now!r} now"]
