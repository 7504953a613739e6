"""Names of a run's topics, one for each kind of message."""

from __future__ import annotations

import re
from collections.abc import Iterable

KINDS = ("action", "info", "broadcast")
_PREFIX = "parllel."
_MAX_LENGTH = 249  # of a topic's name, a limit of Kafka
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+")


def sessions_topic(run: str) -> str:
    """Return the name of the topic in which the sessions of a run announce themselves."""
    return f"{_PREFIX}{run}.sessions"


def hosts_topic(run: str) -> str:
    """Return the name of the topic in which agent hosts and the environment side of a run meet."""
    return f"{_PREFIX}{run}.hosts"


def run_topics(run: str) -> dict[str, str]:
    """Return the name of the topic for each kind.

    Raises:
        ValueError: if the run's name cannot be part of a topic's name.
        TypeError: if `run` is not a str.
    """
    if not isinstance(run, str):
        raise TypeError(f"run: expected a str, got {type(run).__name__}")
    topics = {kind: f"{_PREFIX}{run}.{kind}" for kind in KINDS}
    longest = _MAX_LENGTH + len(run) - max(map(len, topics.values()))
    if not _ALLOWED.fullmatch(run) or len(run) > longest:
        raise ValueError(
            f"run: expected 1 to {longest} letters, digits, '.', '_' or '-', because Kafka topics "
            f"are named after the run, got {run[:300]!r}"
        )
    return topics


def runs_of(topics: Iterable[str]) -> dict[str, list[str]]:
    """Return a dict from run to the kinds of topics it has. Runs and kinds are sorted."""
    found: dict[str, list[str]] = {}
    for topic in sorted(topics):
        run, _, kind = topic.removeprefix(_PREFIX).rpartition(".")
        if topic.startswith(_PREFIX) and run and kind in KINDS:
            found.setdefault(run, []).append(kind)
    return found
