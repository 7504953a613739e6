"""Time a sweep of 3 x 5 short runs with two jobs and with one, in turn.

    python -m benchmarks.sweeps [--rounds N] [--n-steps N] [--output FILE]

Every sweep starts in an empty folder. Its time includes the start of all processes, table and picture.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.interval import estimate
from benchmarks.harness.machine import describe_machine
from benchmarks.harness.results import results_of, write

GOAL = 0.65  # of the time of one run after the other
SCRIPT = Path(__file__).parents[2] / "examples" / "cartpole" / "train_ppo.py"
SETTINGS = ("ppo.learning_rate=3e-4,1e-3,3e-3", "seed=0-4", "target_return=501")
N_RUNS = 15
ROUNDS, N_STEPS = 3, 40_960


def sweep_s(jobs: int, n_steps: int) -> float:
    """Return the seconds of a sweep."""
    with TemporaryDirectory() as base:
        folder = Path(base, "sweep")
        settings = (*SETTINGS, f"n_steps={n_steps}")
        words = ["sweep", str(SCRIPT), *settings, "--jobs", str(jobs), "--into", str(folder)]
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "parllel", *words], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.perf_counter() - began
        runs = json.loads((folder / "results.json").read_text())["runs"]
        assert [run["state"] for run in runs] == ["finished"] * N_RUNS
        return seconds


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="sweeps of each kind")
    parser.add_argument("--n-steps", type=int, default=N_STEPS, help="length of a run")
    parser.add_argument("--output", type=Path, default=results_of("sweeps"), metavar="FILE")
    arguments = parser.parse_args()
    two, one = [], []
    for _ in range(arguments.rounds):
        two.append(sweep_s(2, arguments.n_steps))
        one.append(sweep_s(1, arguments.n_steps))
        print(f"two jobs {two[-1]:.1f} s, one job {one[-1]:.1f} s", flush=True)
    ratios = [ours / theirs for ours, theirs in zip(two, one, strict=True)]
    found = estimate(ratios)
    print(f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}] of the time, goal {GOAL}")
    settings = {
        "quick": arguments.rounds < ROUNDS or arguments.n_steps < N_STEPS,
        "rounds": arguments.rounds,
        "n_steps": arguments.n_steps,
        "runs": N_RUNS,
    }
    report = {
        "machine": describe_machine(),
        "settings": settings,
        "two_jobs_s": two,
        "one_job_s": one,
        "ratio": {"median": found.median, "low": found.low, "high": found.high},
        "at_most": GOAL,
        "met": found.high <= GOAL,
    }
    write(arguments.output, report)


if __name__ == "__main__":
    main()
