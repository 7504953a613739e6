"""The topics of a run: one for each kind of message."""

from __future__ import annotations

import re
from collections.abc import Iterable

KINDS = ("action", "info", "broadcast")
_PREFIX = "parllel."
_MOST = 249  # characters of a topic's name
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")


def sessions_topic(run: str) -> str:
    """Return the name of the topic in which the sessions of a run say that they use its topics."""
    return f"{_PREFIX}{run}.sessions"


def run_topics(run: str) -> dict[str, str]:
    """Return the name of the topic of each kind.

    Raises:
        ValueError: if no topic can have the run's name in its own.
        TypeError: if `run` is no str.
    """
    if not isinstance(run, str):
        raise TypeError(f"run: expected a str, got {type(run).__name__}")
    topics = {kind: f"{_PREFIX}{run}.{kind}" for kind in KINDS}
    longest = _MOST + len(run) - max(map(len, topics.values()))
    if not _ALLOWED.fullmatch(run) or len(run) > longest:
        raise ValueError(
            f"run: over Kafka its name is part of topics' names, so expected 1 to {longest} letters, digits, "
            f"'.', '_' or '-', got {run[:300]!r}"
        )
    return topics


def runs_of(topics: Iterable[str]) -> dict[str, list[str]]:
    """Return the kinds of which each run has a topic, by the run, both sorted."""
    found: dict[str, list[str]] = {}
    for topic in sorted(topics):
        run, _, kind = topic.removeprefix(_PREFIX).rpartition(".")
        if topic.startswith(_PREFIX) and run and kind in KINDS:
            found.setdefault(run, []).append(kind)
    return found
