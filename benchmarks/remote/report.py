"""Goals and tables."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.harness.answers import Answer, answer_table, machine_words, ratios, table
from benchmarks.remote.rounds import KAGGLE, OURS

NO_KAGGLE = "not measured: run python benchmarks/peers/venvs.py kaggle first"


def answers(
    rates: dict[str, list[float]],
    spread: dict[str, list[float]],
    guards: dict[str, list[float]],
) -> list[Answer]:
    """Return what the rounds came to.

    rates, spread, guards: of `round_trips`, `session_spread` and `guards`.
    """
    theirs = rates.get(KAGGLE, [])
    note = "" if theirs else NO_KAGGLE

    def against(how: str) -> list[float]:
        return ratios(rates[OURS[how]], theirs) if theirs else []

    return [
        Answer(
            "json",
            "round trips of one client, against kaggle-environments' UrlAgent and server",
            against("json"),
            *(20.0, 40.0, "x"),
            note=note,
        ),
        Answer(
            "protobuf",
            "the same by protobuf, against its JSON",
            against("protobuf"),
            *(None, None, "x"),
            note=note,
        ),
        Answer(
            "batch",
            "observations in batches of 64, against its one at a time",
            against("batch"),
            *(50.0, 200.0, "x"),
            note=note,
        ),
        Answer(
            "sessions",
            "64 sessions at once: p99 of a round trip over its median",
            ratios(spread["p99"], spread["p50"]),
            *(5.0, 3.0, "x"),
            small=True,
        ),
        Answer(
            "guards",
            "an echo behind all guards, against the same without: requests per CPU time",
            ratios(guards["bare"], guards["guarded"]),
            *(0.8, 1.0, "x"),
        ),
        Answer(
            "threads",
            "the same by handlers in threads",
            ratios(guards["bare"], guards["threads"]),
            *(None, None, "x"),
        ),
    ]


def markdown(report: dict[str, Any]) -> str:
    """Return the tables for docs/measured.md, with what they were measured on."""
    settings = report["settings"]
    spread = {name: median(values) for name, values in report["sessions"].items()}
    lines = [
        f"{machine_words(report)}; clients and servers are "
        f"processes of this machine; medians of {settings['rounds']} interleaved rounds of "
        f"{settings['turn_s']:g} s, with their 95 % intervals.",
        "",
        *answer_table(report["answers"]),
        "",
        *table(
            ("one client, an agent from a file", "actions per second"),
            [(name, f"{median(rates):,.0f}") for name, rates in report["rates"].items()],
            "lr",
        ),
        "",
        f"With {settings['sessions']} sessions at once, each with an agent in a process of its own: "
        f"{spread['rate']:,.0f} round trips per second, of which half take less than "
        f"{1e3 * spread['p50']:.1f} ms, and 99 % less than {1e3 * spread['p99']:.1f} ms.",
    ]
    return "\n".join(lines) + "\n"
