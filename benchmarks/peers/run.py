"""Measure everything: print tables, write JSON, a chart, and the figures in README and docs.

    python benchmarks/peers/run.py [--quick] [--only NAME ...] [--rounds N] [--output FILE]
    python benchmarks/peers/run.py --again NAME ...

Quick runs show that everything works; their figures say little.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.again import check_machine, put_into
from benchmarks.measure import describe_machine
from benchmarks.pages import results_of, update_pages
from benchmarks.peers import main_process
from benchmarks.peers.client import SideError
from benchmarks.peers.driver import Effort, SceneResult, measure_scene, usable_cores
from benchmarks.peers.figures import answer_cells, draw
from benchmarks.peers.goals import Answer, goals, pending
from benchmarks.peers.main_process import measure_main_process
from benchmarks.peers.scenes import SCENES, Scene
from benchmarks.peers.venvs import NOT_MEASURED

QUICK = Effort(rounds=3, turn_s=0.05, trials=1, trial_s=0.02, finals=1, settings=2)
RESULTS = results_of("peers")
MAIN = "main"
WIDTHS = (66, 34, 22, 16)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, measure, print and write."""
    options = parse(arguments)
    # Ended from outside, it ends what it started, as for Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    effort = QUICK if options.quick else Effort()
    if options.rounds is not None:
        effort = replace(effort, rounds=options.rounds)
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "settings": {"quick": options.quick, **asdict(effort)},
        "scenes": [],
        "answers": [],
        "not_measured": dict(NOT_MEASURED),
    }
    if options.again:
        check_machine(options.output, report["machine"])
    answers: list[Answer] = []
    for scene in chosen_scenes(options):
        answers += measure_and_print(scene, effort, report)
    if wants_main(options):
        answers += answer_main(effort, options.quick, report)
    if not options.only:
        answers += pending()
    report["answers"] = [answer.as_dict() for answer in answers]
    if options.again:
        report = put_scenes_into(options.output, report)
    print_answers(report["answers"])
    write(report, options)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; exit with a message for a name that fits nothing."""
    names = [*(scene.name for scene in SCENES), MAIN]
    parser = argparse.ArgumentParser(description="Compare parllel with its peers and the ideal.")
    parser.add_argument("--quick", action="store_true", help="few short turns; for a look only")
    parser.add_argument("--only", metavar="NAME", nargs="+", help=f"some of {', '.join(names)}")
    parser.add_argument(
        "--again", metavar="NAME", nargs="+", help="the same, and put them into what OUTPUT holds"
    )
    parser.add_argument("--sides", metavar="NAME", nargs="+", help="sides to measure; all without")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each side")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if options.again:
        if options.only or options.sides or not options.output.exists():
            parser.error("--again: expected an output that exists, no --only and no --sides")
        options.only = options.again
    unknown = set(options.only or ()) - set(names)
    if unknown:
        parser.error(
            f"--only: expected some of {', '.join(names)}, got {', '.join(sorted(unknown))}"
        )
    sides = {entry.name for scene in SCENES for entry in scene.entries}
    unknown = set(options.sides or ()) - sides
    if unknown:
        parser.error(
            f"--sides: expected some of {', '.join(sorted(sides))}, got {', '.join(sorted(unknown))}"
        )
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds: expected 1 or more, got {options.rounds}")
    return options


def chosen_scenes(options: argparse.Namespace) -> list[Scene]:
    """Return the scenes to measure, with the sides that are wanted."""
    scenes = [
        scene
        for scene in SCENES
        if (scene.name in options.only if options.only else scene.quick or not options.quick)
    ]
    if not options.sides:
        return scenes
    kept = [
        replace(scene, entries=tuple(e for e in scene.entries if e.name in options.sides))
        for scene in scenes
    ]
    return [scene for scene in kept if scene.entries]


def wants_main(options: argparse.Namespace) -> bool:
    """Return whether the main process is to be looked at."""
    return MAIN in options.only if options.only else not options.sides


def measure_and_print(scene: Scene, effort: Effort, report: dict[str, Any]) -> list[Answer]:
    """Measure a scene, print its rates, keep them in the report, and return its answers."""
    print(f"{scene.name}: {scene.workload.env_id}, B={scene.workload.B}", flush=True)
    try:
        result = measure_scene(scene, effort, say=lambda line: print(line, flush=True))
    except SideError as error:
        report["not_measured"][scene.name] = str(error)
        print(f"  {error}", flush=True)
        return []
    print_rates(result)
    report["scenes"].append({**as_dict(result), "settings": asdict(effort)})
    cores = len(usable_cores())
    return [goal.answer(result, cores) for goal in goals(cores) if goal.scene == scene.name]


def answer_main(effort: Effort, quick: bool, report: dict[str, Any]) -> list[Answer]:
    """Look at the main process; a failure is noted."""
    print("main process", flush=True)
    try:
        return measure_main_process(effort, quick)
    except SideError as error:
        report["not_measured"].update(dict.fromkeys(main_process.NAMES, str(error)))
        print(f"  {error}", flush=True)
        return []


def put_scenes_into(path: Path, report: dict[str, Any]) -> dict[str, Any]:
    """Return what `path` holds, with scenes and answers that were measured again in their old places."""
    old = put_into(path, report, ("scenes", "answers"))
    for name in {scene["name"] for scene in report["scenes"]}:
        old["not_measured"].pop(name, None)
    old["not_measured"] |= report["not_measured"]
    return old


def print_rates(result: SceneResult) -> None:
    """Print a line for each side, the fastest first."""
    ideal = result.best("ideal")
    for side in sorted(result.sides, key=lambda side: -side.median):
        share = f"{side.median / ideal.median:6.2f} of the ideal" if ideal is not None else ""
        differs = "  NOT THE SAME ENVIRONMENTS" if side.agrees is False else ""
        print(
            f"  {side.name:28} {side.median:12,.0f} steps/s {share}  {side.settings}{differs}",
            flush=True,
        )


def print_answers(answers: list[dict[str, Any]]) -> None:
    """Print the table."""
    print()
    for cells in [("what", "measured", "at least (aim)", "met"), *map(answer_cells, answers)]:
        line = " | ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True))
        print(line.rstrip(), flush=True)


def as_dict(result: SceneResult) -> dict[str, Any]:
    """Return a scene with every figure of every side."""
    return {
        "name": result.scene.name,
        "measured": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "workload": result.scene.workload.as_dict(),
        "sides": [asdict(side) for side in result.sides],
        "left_out": result.left_out,
        "forward_s": result.forward_s,
    }


def write(report: dict[str, Any], options: argparse.Namespace) -> None:
    """Write JSON and chart; the pages too after a full run into the usual place."""
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    draw(report, options.output.with_suffix(".png"))
    print(f"\nfigures: {options.output}")
    in_part = options.quick or (options.only and not options.again) or options.sides
    if options.output == RESULTS and not in_part:
        update_pages()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
