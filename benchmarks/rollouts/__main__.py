"""Measure rollouts beside their peers: print tables, write JSON, a chart, and the figures in docs.

    python -m benchmarks.rollouts [--quick] [--only NAME ...] [--rounds N] [--output FILE]

Peers and our own side run in one virtual environment, made by `python benchmarks/peers/venvs.py rollouts`.
A quick run shows that everything works; its figures say little.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.measure import describe_machine
from benchmarks.pages import results_of, update_pages
from benchmarks.peers.catalogue import Entry
from benchmarks.peers.client import SideError, SideProcess
from benchmarks.peers.driver import Effort, SceneResult, measure_scene, opened
from benchmarks.peers.figures import answer_cells
from benchmarks.peers.goals import Answer
from benchmarks.peers.scenes import Scene
from benchmarks.peers.workload import Workload
from benchmarks.rollouts.catalogue import FULL, PROBES, QUICK, SCENES, SIDES, VENV, Probe
from benchmarks.rollouts.goals import goals, probe_answer
from benchmarks.rollouts.report import draw
from benchmarks.rollouts.scaling import scaling, table

RESULTS = results_of("rollouts")
SCALING = "scaling"
PROBE_SIDE = SIDES + "ray_probe_side:RayProbeSide"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, measure, print and write."""
    options = parse(arguments)
    # Ended from outside, it ends what it started, as for Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Ray would write one into the home folder.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    effort = QUICK if options.quick else FULL
    if options.rounds is not None:
        effort = replace(effort, rounds=options.rounds)
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "settings": {"quick": options.quick, **asdict(effort)},
        "scenes": [],
        "answers": [],
        "not_measured": {},
        "scaling": None,
    }
    answers: list[Answer] = []
    for scene in chosen_scenes(options):
        answers += measure_rates(scene, effort, report)
    answers += measure_probes(PROBES, options)
    if wanted(SCALING, options):
        measure_scaling(report, options.quick)
    report["answers"] = [answer.as_dict() for answer in answers]
    write(report, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; exit with a message for a name that fits nothing."""
    names = [*(one.name for one in SCENES), *(one.name for one in PROBES), SCALING]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rollouts", description="Compare rollouts on Ray with others."
    )
    parser.add_argument("--quick", action="store_true", help="few short turns; for a look only")
    parser.add_argument("--only", metavar="NAME", nargs="+", help=f"some of {', '.join(names)}")
    parser.add_argument("--sides", metavar="NAME", nargs="+", help="sides to measure; all without")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each side")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    for option, known in (
        ("only", names),
        ("sides", [entry.name for entry in SCENES[0].entries]),
    ):
        if unknown := set(getattr(options, option) or ()) - set(known):
            got = ", ".join(sorted(unknown))
            parser.error(f"--{option}: expected some of {', '.join(known)}, got {got}")
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds: expected 1 or more, got {options.rounds}")
    return options


def chosen_scenes(options: argparse.Namespace) -> list[Scene]:
    """Return the scenes to measure, with the sides that are wanted."""
    chosen = []
    for scene in SCENES:
        if wanted(scene.name, options) and (scene.quick or options.only or not options.quick):
            entries = scene.entries
            if options.sides:
                entries = tuple(entry for entry in entries if entry.name in options.sides)
            chosen.append(replace(scene, entries=entries))
    return chosen


def wanted(name: str, options: argparse.Namespace) -> bool:
    """Return whether a part is to be measured."""
    return not options.only or name in options.only


def measure_rates(scene: Scene, effort: Effort, report: dict[str, Any]) -> list[Answer]:
    """Measure all sides in turn, print their rates, and return what they answer."""
    print(f"{scene.name}: {scene.workload.env_id}, B={scene.workload.B}", flush=True)
    try:
        result = measure_scene(scene, effort, say=lambda line: print(line, flush=True))
    except SideError as error:
        report["not_measured"][scene.name] = str(error)
        print(f"  {error}", flush=True)
        return []
    for side in result.sides:
        print(f"  {side.name:<34} {side.median:>10,.0f} steps/s  {side.settings}", flush=True)
    report["scenes"].append(as_dict(result))
    return [goal.answer(result, 0) for goal in goals() if goal.scene == scene.name]


def as_dict(result: SceneResult) -> dict[str, Any]:
    """Return JSON values."""
    return {
        "name": result.scene.name,
        "workload": result.scene.workload.as_dict(),
        "sides": [asdict(side) for side in result.sides],
        "left_out": result.left_out,
    }


def measure_probes(probes: Sequence[Probe], options: argparse.Namespace) -> list[Answer]:
    """Ask all questions, those of the same settings in a row in one server."""
    answers: list[Answer] = []
    chosen = [probe for probe in probes if wanted(probe.name, options)]
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


def measure_scaling(report: dict[str, Any], quick: bool) -> None:
    """Measure what each part of ours costs, and simulate more workers."""
    try:
        with probe_server(PROBES[-1].settings) as server:
            report["scaling"] = scaling(server.ask("costs", n=1 if quick else 5))
    except SideError as error:
        report["not_measured"][SCALING] = str(error)
        print(f"{SCALING}: {error}", flush=True)
        return
    print("\n".join(table(report["scaling"])), flush=True)


@contextmanager
def probe_server(settings: dict[str, Any]) -> Iterator[SideProcess]:
    """Start our side on Ray in a process of its own, which answers questions.

    Raises:
        SideError: if it cannot be started.
    """
    entry = Entry("probes", PROBE_SIDE, lambda *_: [settings], "ours", VENV, halts=False)
    if entry.python is None:
        raise SideError(f"run python benchmarks/peers/venvs.py {VENV} first")
    with opened(entry, Workload("CartPole-v1"), settings) as (server, _):
        assert isinstance(server, SideProcess)
        yield server


def write(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the answers; write the JSON, the chart and, after a whole run, the pages."""
    print()
    for answer in report["answers"]:
        print(" | ".join(answer_cells(answer)))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    draw(report, options.output.with_suffix(".png"))
    print(f"\nfigures: {options.output}, with a chart beside it")
    if options.output == RESULTS and not (options.quick or options.only or options.sides):
        update_pages()


if __name__ == "__main__":
    main()
