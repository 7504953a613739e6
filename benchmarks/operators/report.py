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
from benchmarks.operators.rounds import BARE, ECHO, KINDER, NESTED, OURS, PNG, TIMER


def answers(
    rates: dict[str, list[float]],
    pictures: dict[str, list[float]],
    stops: list[float],
    starts: dict[str, list[tuple[float, float]]],
) -> list[Answer]:
    """Return what the rounds came to.

    rates, pictures, stops, starts: of the functions of the same names in `rounds`.
    """
    ours = rates[OURS]
    worker, gymnasium = starts["worker"], starts["gymnasium"]
    passed, cpu = (
        ratios([one[k] for one in worker], [one[k] for one in gymnasium]) for k in (0, 1)
    )
    return [
        Answer(
            "timer",
            "a step and back, against a loop in the style of MOSAIC with its timer and frames",
            ratios(ours, rates[TIMER]),
            *(10.0, None, "x"),
        ),
        Answer(
            "kinder",
            "the same without the pause of the timer",
            ratios(ours, rates[KINDER]),
            *(10.0, None, "x"),
        ),
        Answer(
            "bare",
            "the same without the pause and without frames",
            ratios(ours, rates[BARE]),
            *(None, None, "x"),
        ),
        Answer("rate", "steps per second of an operator", ours, *(5000.0, None, "")),
        Answer(
            "echo",
            "a step and back, against a bare echo of JSON with the same environment",
            ratios(ours, rates[ECHO]),
            *(0.25, None, "x"),
        ),
        Answer(
            "frame",
            "a step with a PNG of 256 x 256 on request, against nested lists",
            ratios(pictures[PNG], pictures[NESTED]),
            *(20.0, None, "x"),
        ),
        Answer(
            "stop",
            "to end 16 operators that ignore SIGTERM",
            stops,
            *(6.0, None, " s"),
            small=True,
        ),
        Answer(
            "start",
            "a worker from its start over a reset to its end, against `import gymnasium`: time that passes",
            passed,
            *(1.5, None, "x"),
            small=True,
        ),
        Answer(
            "start_cpu",
            "the same: CPU time",
            cpu,
            *(1.5, None, "x"),
            small=True,
        ),
    ]


def markdown(report: dict[str, Any]) -> str:
    """Return the tables for docs/measured.md, with what they were measured on."""
    settings, played = report["settings"], report["experiment"]
    rates = {**report["rates"], **report["pictures"]}
    lines = [
        f"{machine_words(report)}; medians of "
        f"{settings['rounds']} interleaved rounds of {settings['turn_s']:g} s, of {settings['stops']} for "
        "ends, with their 95 % intervals.",
        "",
        *answer_table(report["answers"], HEADS_WITHOUT_AIM),
        "",
        *table(
            ("one worker", "steps per second"),
            [(name, f"{median(found):,.0f}") for name, found in rates.items()],
            "lr",
        ),
        "",
        f"An experiment of 4 random operators on CartPole, each at full speed for {settings['episodes']:,} "
        f"episodes, makes {played['steps'] / played['seconds']:,.0f} steps per second in all, its start and "
        f"its records included; {1e6 * played['cpu_s'] / played['steps']:.0f} µs of CPU time of the "
        "experiment's own process go to each.",
    ]
    return "\n".join(lines) + "\n"
