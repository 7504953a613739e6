"""The measurements: rounds of all sides in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import turns
from benchmarks.harness.turns import Work, in_turn, opened
from benchmarks.operators.sides import (
    CARTPOLE,
    FRAMES,
    HERE,
    TIMER_S,
    WAIT_S,
    Echo,
    Mosaic,
    Operator,
)
from parllel.distributed.operators import Experiment, OperatorConfig, OperatorLauncher

OURS = "operator, no frames"
TIMER = "in the style of MOSAIC: its timer, nested frames"
KINDER = "the same without the timer's pause"
BARE = "the same without frames either"
ECHO = "bare echo of JSON lines"
PNG = "operator, PNG of 256 x 256"
NESTED = "in the style of MOSAIC, nested lists of 256 x 256"
WORKER = "parllel.distributed.operators.workers.operators_worker"


@dataclass(frozen=True)
class Effort(turns.Effort):
    """How long to measure.

    Attributes:
        stops: turns of ending operators that ignore SIGTERM.
        stubborn: how many these are.
        episodes: of each operator of the experiment.
    """

    stops: int = 6
    stubborn: int = 16
    episodes: int = 1000


FULL = Effort(10, 1.0)
QUICK = Effort(1, 0.2, 1, 2, 4)


def steps(effort: Effort) -> dict[str, list[float]]:
    """Return steps per second of CartPole by each side, a value for each round."""
    sides: dict[str, Callable[[], Work]] = {
        OURS: Operator,
        TIMER: partial(Mosaic, pause_s=TIMER_S),
        KINDER: Mosaic,
        BARE: partial(Mosaic, frames=False),
        ECHO: Echo,
    }
    return _rates(effort, sides)


def frames(effort: Effort) -> dict[str, list[float]]:
    """Return pictures per second by each side, that of the operator on request."""
    return _rates(effort, {PNG: partial(Operator, FRAMES, "png"), NESTED: partial(Mosaic, FRAMES)})


def _rates(effort: Effort, sides: Mapping[str, Callable[[], Work]]) -> dict[str, list[float]]:
    with opened(sides) as works:
        took = in_turn(effort, works, time.perf_counter)
    return {name: [1 / seconds for seconds in found] for name, found in took.items()}


def stops(effort: Effort) -> list[float]:
    """Return how many seconds it took to end operators that ignore SIGTERM, a value for each turn."""
    worker = [sys.executable, str(HERE / "stubborn_worker.py")]
    found = []
    for _ in range(effort.stops):
        with TemporaryDirectory() as folder:
            launcher = OperatorLauncher(folder=folder)
            for number in range(effort.stubborn):
                config = OperatorConfig("program", f"stubborn-{number}", worker=worker)
                handle = launcher.launch_operator(config, f"bench-{number}", interactive=True)
                handle.send_ping()
                handle.read_response(WAIT_S)  # from here on it ignores the signal
            began = time.perf_counter()
            launcher.close()
            found.append(time.perf_counter() - began)
    return found


def starts(effort: Effort) -> dict[str, list[tuple[float, float]]]:
    """Return how long a worker takes to start, to reset CartPole and to end, and the import of Gymnasium.

    Returns: seconds that passed and seconds of CPU time under "worker" and "gymnasium", for each round.
    """
    arguments = ["--env-id", CARTPOLE, "--policy", "random", "--interactive"]
    commands = b'{"cmd": "reset", "seed": 0}\n{"cmd": "stop"}\n'
    found: dict[str, list[tuple[float, float]]] = {"worker": [], "gymnasium": []}
    for _ in range(effort.rounds):
        found["worker"].append(_timed(["-m", WORKER, *arguments], commands, b'"ready"'))
        found["gymnasium"].append(_timed(["-c", "import gymnasium"], b"", b""))
    return found


def _timed(arguments: Sequence[str], given: bytes, expected: bytes) -> tuple[float, float]:
    """Run Python; return seconds that passed, and those of CPU time."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], input=given, capture_output=True, check=True, timeout=WAIT_S
    )
    passed, after = time.perf_counter() - began, os.times()
    assert expected in done.stdout, done
    user = after.children_user - before.children_user
    return passed, user + after.children_system - before.children_system


def experiment(effort: Effort) -> dict[str, float]:
    """Return what an experiment of four operators came to, its start and its records included.

    Returns: "steps", "seconds" that passed, and "cpu_s" of this process.
    """
    operators = [
        OperatorConfig("baseline", f"random-{number}", CARTPOLE, policy="random")
        for number in range(4)
    ]
    with TemporaryDirectory() as folder:
        made = Experiment("bench", operators, seeds=range(effort.episodes), mode="free")
        cpu, began = time.process_time(), time.perf_counter()
        made.run(base=folder)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        steps = sum(_lines(path) for path in Path(folder).rglob("*_steps.jsonl"))
    return {"steps": float(steps), "seconds": seconds, "cpu_s": cpu}


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)
