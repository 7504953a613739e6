"""Goals and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from benchmarks.harness.interval import estimate
from benchmarks.messaging.hosts import MEMORY, ONE_PROCESS, TWO_HOSTS
from benchmarks.messaging.rounds import CALLS, CALLS_FOUR, ENCODED, ENCODED_FOUR, REFERENCES
from benchmarks.messaging.workload import HOSTED_HOPS, HOSTED_MESSAGES, MESSAGES, N_ENVS, N_HOPS

N_MESSAGES = N_ENVS * MESSAGES
MIB = 2.0**20


def answers(measured: dict[str, Any]) -> list[Answer]:
    """Return what the rounds came to.

    measured: the report, or some parts of it.
    """
    found: list[Answer] = []
    for part, lines in (
        ("steps_s", _step_answers),
        ("delayed_s", _delay_answers),
        ("kafka_s", _kafka_answers),
        ("sizes_s", _size_answers),
        ("grown_bytes", _growth_answers),
        ("hosted_s", _host_answers),
    ):
        if part in measured:
            found += lines(measured)
    return found


def _step_answers(measured: dict[str, Any]) -> Iterator[Answer]:
    steps = measured["steps_s"]
    for name, what, ours, calls, goal in (
        ("references", "a vector step with references, against calls", REFERENCES, CALLS, 4.0),
        ("scalar", "the same as bytes, a number in each message", ENCODED, CALLS, 10.0),
        ("four", "the same, an array of four in each", ENCODED_FOUR, CALLS_FOUR, 20.0),
    ):
        values = ratios(steps[ours], steps[calls])
        yield Answer(name, what, values, goal, None, unit="x", small=True)


def _delay_answers(measured: dict[str, Any]) -> Iterator[Answer]:
    hop_s = N_HOPS * measured["delay_s"]
    delays = [took / hop_s for took in measured["delayed_s"]]
    what = "a vector step whose hops take 20 ms, against their sum"
    yield Answer("delay", what, delays, 1.3, None, unit="x", small=True)


def _kafka_answers(measured: dict[str, Any]) -> Iterator[Answer]:
    for kind, took in measured["kafka_s"].items():
        what = f"messages on Kafka ({kind}), against one at a time"
        values = ratios([N_MESSAGES * one for one in took["single"]], took["hops"])
        yield Answer(f"kafka/{kind}", what, values, 20.0, None, unit="x")


def _size_answers(measured: dict[str, Any]) -> Iterator[Answer]:
    for what in ("message", "reset"):
        by_size = measured["sizes_s"][what]
        first, *_, last = by_size
        name = f"a {what} with {int(last):,} environments, against {int(first):,}"
        values = ratios(by_size[last], by_size[first])
        yield Answer(f"flat/{what}", name, values, 1.5, None, unit="x", small=True)


def _growth_answers(measured: dict[str, Any]) -> Iterator[Answer]:
    for what, grown in measured["grown_bytes"].items():
        times = measured["grown_after"][what]
        name = f"growth of memory over {times:,} {what}"
        yield Answer(f"memory/{what}", name, [grown / MIB], 1.0, None, " MiB", small=True)


def _host_answers(measured: dict[str, Any]) -> Iterator[Answer]:
    for kind, took in measured["hosted_s"].items():
        if TWO_HOSTS in took:
            what = f"a vector step on Kafka ({kind}) with leaves on two hosts, against one process"
            values = ratios(took[TWO_HOSTS], took[ONE_PROCESS])
            yield Answer(f"hosts/{kind}", what, values, None, None, unit="x", small=True)


def markdown(report: dict[str, Any]) -> str:
    """Return the tables for docs/measured.md, with what they were measured on."""
    settings = report["settings"]
    lines = [
        f"{machine_words(report)}; {N_ENVS} environments of "
        f"11 agents, {N_MESSAGES:,} messages a vector step; medians of {settings['rounds']} interleaved "
        f"rounds of {settings['turn_s']:g} s, with their 95 % intervals. In memory it is CPU time.",
    ]
    for rows in (
        answer_table(report["answers"], HEADS_WITHOUT_AIM) if report["answers"] else [],
        _steps_table(report),
        _sizes_table(report),
    ):
        lines += ["", *rows] if rows else []
    return "\n".join(lines) + "\n"


def _steps_table(report: dict[str, Any]) -> list[str]:
    kafka = {f"Kafka, {kind}": took["hops"] for kind, took in report.get("kafka_s", {}).items()}
    sides = {**report.get("steps_s", {}), **kafka}
    if not sides:
        return []
    return table(
        ("a vector step", "ms", "µs for a message"),
        [
            (name, f"{1e3 * median(took):.1f}", f"{1e6 * median(took) / N_MESSAGES:.2f}")
            for name, took in sides.items()
        ],
        "lrr",
    )


def _sizes_table(report: dict[str, Any]) -> list[str]:
    if "sizes_s" not in report:
        return []
    return table(
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
    )


def hosts_markdown(report: dict[str, Any]) -> str:
    """Return the table of vector steps with hosts for docs/messaging.md; "" if they were not measured."""
    if "hosted_s" not in report:
        return ""
    n, sides = report["hosted_envs"], report["hosted_s"]
    memory = sides[MEMORY][ONE_PROCESS]
    rows = [
        _host_row(kind, where, took, n, memory, by_place[ONE_PROCESS])
        for kind, by_place in sides.items()
        for where, took in by_place.items()
    ]
    lines = [
        f"**Cost.** A vector step of {n} environments of 11 agents has {N_HOPS} hops and {n * MESSAGES:,} "
        f"messages. If two hosts run the ten leaves, it has {HOSTED_HOPS} hops and {n * HOSTED_MESSAGES:,} "
        "messages: the environment also sends each leaf its observation, and receives its action on the "
        "physics. The agents only pass on what they receive, so these are the costs of the messages:",
        "",
        *table(
            (
                "",
                "µs for a step",
                "for a hop",
                "for a message",
                "against memory",
                "against one process",
            ),
            rows,
            "lrrrrr",
        ),
        "",
        f"{machine_words(report)}, which the processes and the broker share; medians of {len(memory)} "
        "interleaved rounds, with their 95 % intervals. mock is librdkafka's mock broker and tansu a broker "
        "in Rust, both on loopback and started anew for each turn. The time for a hop is that of the step, "
        "divided by the number of hops, although several groups of environments are in transit at the same "
        "time.",
    ]
    return "\n".join(lines) + "\n"


def _host_row(
    kind: str,
    where: str,
    took: Sequence[float],
    n: int,
    memory: Sequence[float],
    one_process: Sequence[float],
) -> tuple[str, ...]:
    """Return the cells of a side, whose ratios are those within a round."""
    hosted = where == TWO_HOSTS
    n_hops, n_messages = (HOSTED_HOPS, HOSTED_MESSAGES) if hosted else (N_HOPS, MESSAGES)
    step_us = [1e6 * one for one in took]
    return (
        f"{kind}, {where}",
        _with_interval(step_us, ",.0f"),
        f"{median(step_us) / n_hops:,.0f}",
        f"{median(step_us) / (n * n_messages):.2f}",
        "" if kind == MEMORY else f"{_with_interval(ratios(took, memory), '.2f', 'x')}",
        f"{_with_interval(ratios(took, one_process), '.2f', 'x')}" if hosted else "",
    )


def _with_interval(values: Sequence[float], form: str, unit: str = "") -> str:
    found = estimate(values)
    return f"{found.median:{form}}{unit} ({found.low:{form}} to {found.high:{form}})"


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
