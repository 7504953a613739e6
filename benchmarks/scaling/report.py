"""Predictions and checks as Markdown."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.harness.answers import machine_words, table

_PARTS = ("buffer", "trainer", "manager", "network")


def markdown(report: dict[str, Any]) -> str:
    """Return the text and the tables for docs/cluster.md."""
    assumed = report["assumed"]
    lines = [
        f"{machine_words(report)}, the costs of the parts were measured for observations of several sizes "
        "(`make bench-scaling`). The simulation then gives for workers with 8 environments, whose steps take "
        f"{assumed['step_s'] * 1e3:g} ms each, ten on a node, and a network card of "
        f"{assumed['network_bytes_per_s'] * 8 / 1e9:g} Gbit/s in the trainer's node:",
        "",
        *_predictions(report["sizes"]),
        "",
    ]
    if report["checks"]:
        lines += [
            "The prediction for a few workers on this machine, with environments that wait without "
            "computing, against runs:",
            "",
            *_checks(report["checks"]),
            "",
        ]
    lines += [f"Not measured: {name}: {why}" for name, why in report["not_measured"].items()]
    return "\n".join(lines).rstrip() + "\n"


def _predictions(sizes: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            size["name"],
            _bytes(size["costs"]["fragment_bytes"]),
            f"{one['n_workers']:,}",
            f"{one['steps_per_second']:,}",
            f"{one['efficiency']:.0%}",
            f"{one['megabytes_per_second']:,.0f}",
            *(f"{one['shares'][part]:.0%}" for part in _PARTS),
            one["first_used_up"],
        )
        for size in sizes
        for one in size["predictions"]
    ]
    heads = ("observation", "fragment", "workers", "steps/s", "of the workers' own", "MB/s")
    return table((*heads, *_PARTS, "used up first"), rows, "llrrrrrrrrl")


def _checks(checks: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            f"{one['n_workers']}",
            f"{one['predicted']:,}",
            f"{median(one['measured']):,.0f} ({min(one['measured']):,.0f} to "
            f"{max(one['measured']):,.0f})",
            f"{median(one['measured']) / one['predicted']:.2f}",
        )
        for one in checks
    ]
    return table(("workers", "predicted steps/s", "measured", "of the prediction"), rows, "rrrr")


def _bytes(n: float) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e6 else f"{n / 1e3:.0f} kB"
