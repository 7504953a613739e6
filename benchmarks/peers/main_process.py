"""Does the main process do work that grows with B, touch new pages, or keep memory?"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness.answers import Answer
from benchmarks.harness.machine import usable_cores
from benchmarks.harness.turns import in_rounds
from benchmarks.peers.catalogue import MAIN_PROCESS
from benchmarks.peers.client import SideProcess
from benchmarks.peers.driver import Effort, Server, opened
from benchmarks.peers.workload import Workload

WIDTHS = (16, 64, 256, 1024)
QUICK_WIDTHS = (16, 64)
STEPS, QUICK_STEPS = 10_000, 500
BATCHES, QUICK_BATCHES = 2, 2
NAMES = ("main/flat", "main/page-faults", "main/memory")


def measure_main_process(effort: Effort, quick: bool) -> list[Answer]:
    """Answer the three questions.

    Raises:
        SideError: if a server fails.
    """
    return [_flat(effort, quick), *_steady(quick)]


def _workload(B: int) -> Workload:
    # Environments that cost next to nothing and whose episodes do not end.
    return Workload("synthetic", B=B, options={"turns": 0, "episode_steps": 10**9})


def _flat(effort: Effort, quick: bool) -> Answer:
    """Compare widths in turn, at the same number of workers; a value is the worst against the least width."""
    widths = QUICK_WIDTHS if quick else WIDTHS
    batches = QUICK_BATCHES if quick else BATCHES
    (settings,) = MAIN_PROCESS.settings(_workload(widths[0]), len(usable_cores()))

    def seconds_per_step(server: Server) -> float:
        server.resume()
        own_s: float = server.ask("own_s", batches=batches) - server.ask("action_copy_s")
        server.stop()
        return own_s

    with ExitStack() as stack:
        servers = {}
        for B in widths:
            # The same pause for all: after a longer one memory is colder, and workers have gone to sleep.
            paused = {**settings, "pause": widths[-1]}
            servers[B], _ = stack.enter_context(opened(MAIN_PROCESS, _workload(B), paused))
            servers[B].stop()
        per_step = in_rounds(effort.rounds, servers, seconds_per_step)
    least = per_step[widths[0]]
    values = [max(per_step[B][i] for B in widths[1:]) / least[i] for i in range(effort.rounds)]
    medians = {B: f"{sorted(s)[len(s) // 2] * 1e6:.1f} us" for B, s in per_step.items()}
    return Answer(
        NAMES[0],
        f"main process per vector step, B={widths[0]} to {widths[-1]}, the most over the least",
        values,
        1.2,
        1.0,
        "x",
        small=True,
        note=f"{settings}; {medians}",
        settings=settings,
    )


def _steady(quick: bool) -> list[Answer]:
    steps = QUICK_STEPS if quick else STEPS
    workload = Workload("CartPole-v1")
    (settings,) = MAIN_PROCESS.settings(workload, len(usable_cores()))
    with opened(MAIN_PROCESS, workload, settings) as (server, _):
        assert isinstance(server, SideProcess)
        server.run(10)
        faults = [server.ask("page_faults", steps=steps) for _ in range(3)]
        grown = [server.ask("traced_growth", steps=steps) for _ in range(3)]
    common = {"small": True, "note": str(settings), "settings": settings}
    return [
        Answer(
            NAMES[1],
            "minor page faults of the main process per step",
            faults,
            0.0,
            0.0,
            **common,  # type: ignore[arg-type]
        ),
        Answer(
            NAMES[2],
            f"growth by tracemalloc over {steps:,} steps",
            [float(value) for value in grown],
            0.0,
            0.0,
            " B",
            **common,  # type: ignore[arg-type]
        ),
    ]
