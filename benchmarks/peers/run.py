"""Measure everything: print tables, write JSON, a chart, and the figures in README and docs.

    python benchmarks/peers/run.py [--quick] [--only NAME ...] [--rounds N] [--output FILE]
    python benchmarks/peers/run.py --again NAME ...

Quick runs only show that everything works; their figures are unreliable.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.command import Command
from benchmarks.harness.answers import Answer
from benchmarks.harness.machine import usable_cores
from benchmarks.harness.results import Report, put_into
from benchmarks.peers import main_process
from benchmarks.peers.client import SideError
from benchmarks.peers.driver import Effort
from benchmarks.peers.figures import draw, markdown
from benchmarks.peers.goals import answer_scenes, goals
from benchmarks.peers.scenes import SCENES, chosen_scenes
from benchmarks.peers.venvs import NOT_MEASURED

MAIN = "main"


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what the scenes and the main process came to."""
    report: Report = {"scenes": [], "answers": [], "not_measured": dict(NOT_MEASURED)}
    asked = goals(len(usable_cores()))
    answers = answer_scenes(chosen_scenes(SCENES, options), effort, asked, report)
    if MAIN in options.only if options.only else not options.sides:
        answers += answer_main(effort, options.quick, report)
    report["answers"] = [answer.as_dict() for answer in answers]
    return report


def answer_main(effort: Effort, quick: bool, report: Report) -> list[Answer]:
    """Look at the main process; a failure is noted."""
    print("main process", flush=True)
    try:
        return main_process.measure_main_process(effort, quick)
    except SideError as error:
        report["not_measured"].update(dict.fromkeys(main_process.NAMES, str(error)))
        print(f"  {error}", flush=True)
        return []


def put(path: Path, report: Report) -> Report:
    """Return what `path` holds, with scenes and answers that were measured again in their old places."""
    old = put_into(path, report, ("scenes", "answers"))
    for one in (*report["scenes"], *report["answers"]):
        old["not_measured"].pop(one["name"], None)
    old["not_measured"] |= report["not_measured"]
    return old


COMMAND = Command(
    "peers",
    "parllel beside its peers and the ideal",
    Effort(),
    Effort(rounds=3, turn_s=0.05, trials=1, trial_s=0.02, finals=1, settings=2),
    measure,
    markdown,
    draw,
    parts=[*(scene.name for scene in SCENES), MAIN],
    sides=sorted({entry.name for scene in SCENES for entry in scene.entries}),
    put=put,
    program="python benchmarks/peers/run.py",
)


if __name__ == "__main__":
    COMMAND.run()
