"""Measure rollouts and their peers: print tables, write JSON, a chart, and the figures in docs.

    python -m benchmarks.rollouts [--quick] [--only NAME ... | --again NAME ...] [--rounds N] [--output FILE]

Peers and our own side run in one virtual environment, made by `python benchmarks/peers/venvs.py rollouts`.
A quick run shows that everything works; its figures say little.
"""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.command import Command, wants
from benchmarks.harness.answers import Answer, answer_cells
from benchmarks.harness.results import Report, put_into
from benchmarks.peers.client import SideError
from benchmarks.peers.driver import Effort
from benchmarks.peers.goals import answer_scenes
from benchmarks.peers.scenes import chosen_scenes
from benchmarks.rollouts.catalogue import FULL, PROBES, QUICK, SCENES, Probe
from benchmarks.rollouts.goals import goals, probe_answer
from benchmarks.rollouts.probe_server import probe_server
from benchmarks.rollouts.report import draw, markdown
from benchmarks.rollouts.scaling import scaling, scaling_table

SCALING = "scaling"


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what scenes, probes and the simulation came to."""
    # Ray would write one into the home folder.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    report: Report = {"scenes": [], "answers": [], "not_measured": {}, "scaling": None}
    answers = answer_scenes(chosen_scenes(SCENES, options), effort, goals(), report)
    answers += measure_probes(PROBES, options)
    if wants(options, SCALING):
        measure_scaling(report, options.quick)
    report["answers"] = [answer.as_dict() for answer in answers]
    return report


def measure_probes(probes: Sequence[Probe], options: argparse.Namespace) -> list[Answer]:
    """Ask all questions, those of the same settings in a row in one server."""
    answers: list[Answer] = []
    chosen = [probe for probe in probes if wants(options, probe.name)]
    for _, group in groupby(chosen, key=lambda probe: probe.settings):
        answers += ask_all(list(group), options.quick)
    for answer in answers:
        print(" | ".join(answer_cells(answer.as_dict())), flush=True)
    return answers


def ask_all(probes: Sequence[Probe], quick: bool) -> list[Answer]:
    """Return what one server answers; what goes wrong becomes the note of all that were not asked."""
    found: dict[str, list[float]] = {}
    why = ""
    try:
        with probe_server(probes[0].settings) as server:
            for probe in probes:
                if probe.name not in found:
                    found.update(server.ask(probe.question, n=1 if quick else probe.n))
    except SideError as error:
        why = f"not measured: {error}"
    return [probe_answer(one, found.get(one.name, []), why) for one in probes]


def measure_scaling(report: Report, quick: bool) -> None:
    """Measure what each part of ours costs, and simulate more workers."""
    try:
        with probe_server(PROBES[-1].settings) as server:
            report["scaling"] = scaling(server.ask("costs", n=1 if quick else 5))
    except SideError as error:
        report["not_measured"][SCALING] = str(error)
        print(f"{SCALING}: {error}", flush=True)
        return
    print("\n".join(scaling_table(report["scaling"])), flush=True)


def put(path: Path, report: Report) -> Report:
    """Return what a file of results holds, with the scenes and probes that were measured again."""
    return put_into(path, report, ("scenes", "answers"))


COMMAND = Command(
    "rollouts",
    "rollouts in threads and on Ray beside others on Ray",
    FULL,
    QUICK,
    measure,
    markdown,
    draw,
    parts=[*(one.name for one in SCENES), *(one.name for one in PROBES), SCALING],
    sides=[entry.name for entry in SCENES[0].entries],
    put=put,
)


if __name__ == "__main__":
    COMMAND.run()
