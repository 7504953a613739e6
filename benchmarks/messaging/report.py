"""Goals and tables."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.harness.answers import (
    HEADS_WITHOUT_AIM,
    Answer,
    answer_table,
    machine_words,
    ratios,
    table,
)
from benchmarks.messaging.rounds import CALLS, CALLS_FOUR, ENCODED, ENCODED_FOUR, REFERENCES
from benchmarks.messaging.workload import MESSAGES, N_ENVS, N_HOPS

N_MESSAGES = N_ENVS * MESSAGES
MIB = 2.0**20


def answers(measured: dict[str, Any]) -> list[Answer]:
    """Return what the rounds came to.

    measured: the report, with delays in its settings.
    """
    steps, hop_s = measured["steps_s"], N_HOPS * measured["delay_s"]
    small: dict[str, Any] = {"unit": "x", "small": True}
    found = [
        Answer(name, what, ratios(steps[ours], steps[calls]), goal, None, **small)
        for name, what, ours, calls, goal in (
            ("references", "a vector step with references, against calls", REFERENCES, CALLS, 4.0),
            ("scalar", "the same as bytes, a number in each message", ENCODED, CALLS, 10.0),
            ("four", "the same, an array of four in each", ENCODED_FOUR, CALLS_FOUR, 20.0),
        )
    ]
    delays = [took / hop_s for took in measured["delayed_s"]]
    what = "a vector step whose hops take 20 ms, against their sum"
    found.append(Answer("delay", what, delays, 1.3, None, **small))
    for kind, took in measured["kafka_s"].items():
        what = f"messages on Kafka ({kind}), against one at a time"
        values = ratios([N_MESSAGES * one for one in took["single"]], took["hops"])
        found.append(Answer(f"kafka/{kind}", what, values, 20.0, None, unit="x"))
    for what in ("message", "reset"):
        by_size = measured["sizes_s"][what]
        first, *_, last = by_size
        name = f"a {what} with {int(last):,} environments, against {int(first):,}"
        values = ratios(by_size[last], by_size[first])
        found.append(Answer(f"flat/{what}", name, values, 1.5, None, **small))
    for what, grown in measured["grown_bytes"].items():
        times = measured["grown_after"][what]
        name = f"growth of memory over {times:,} {what}"
        found.append(Answer(f"memory/{what}", name, [grown / MIB], 1.0, None, " MiB", small=True))
    return found


def markdown(report: dict[str, Any]) -> str:
    """Return the tables for docs/measured.md, with what they were measured on."""
    settings = report["settings"]
    kafka = {f"Kafka, {kind}": took["hops"] for kind, took in report["kafka_s"].items()}
    lines = [
        f"{machine_words(report)}; {N_ENVS} environments of "
        f"11 agents, {N_MESSAGES:,} messages a vector step; medians of {settings['rounds']} interleaved "
        f"rounds of {settings['turn_s']:g} s, with their 95 % intervals. In memory it is CPU time.",
        "",
        *answer_table(report["answers"], HEADS_WITHOUT_AIM),
        "",
        *table(
            ("a vector step", "ms", "µs for a message"),
            [
                (name, f"{1e3 * median(took):.1f}", f"{1e6 * median(took) / N_MESSAGES:.2f}")
                for name, took in {**report["steps_s"], **kafka}.items()
            ],
            "lrr",
        ),
        "",
        *table(
            ("environments", "µs for a message", "µs for a reset of one"),
            [
                (
                    f"{int(n):,}",
                    f"{1e6 * median(took):.2f}",
                    f"{1e6 * median(report['sizes_s']['reset'][n]):.0f}",
                )
                for n, took in report["sizes_s"]["message"].items()
            ],
            "rrr",
        ),
    ]
    return "\n".join(lines) + "\n"


def wire_markdown(report: dict[str, Any]) -> str:
    """Return the table of addresses, records and bytes for docs/messaging.md."""
    wire = report["wire"]
    rows = [
        ("addresses", f"{wire['addresses']:,.0f}"),
        ("bytes of memory that the broker holds for an address", f"{wire['address_bytes']:,.0f}"),
        ("messages in a vector step", f"{N_MESSAGES:,}"),
        ("records that carry them", f"{wire['scalar_records']:,}"),
        ("bytes on the wire for a message, a number in each", _bytes(wire["scalar_bytes"])),
        ("the same, an array of four 32-bit floats in each", _bytes(wire["four_floats_bytes"])),
    ]
    lines = [
        f"{N_ENVS} environments of 11 agents, a root and ten below it:",
        "",
        *table(("", ""), rows, "lr"),
    ]
    return "\n".join(lines) + "\n"


def _bytes(of_step: float) -> str:
    return f"{of_step / N_MESSAGES:.1f}"
