"""Predict the throughput of up to a thousand workers by the size of an observation, and check it here.

    python -m benchmarks.scaling [--quick] [--rounds N] [--output FILE]

What each part costs is measured for each size, on Ray on this machine, and given to the simulation of
benchmarks/rollouts/scaling.py. Its prediction is compared with runs of a few workers whose steps wait without
computing, so that this machine has cores for all of them. Needs the virtual environment of
`python benchmarks/peers/venvs.py rollouts`.
"""

from __future__ import annotations

import argparse
import os
import secrets
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from benchmarks.command import Command
from benchmarks.harness.results import Report
from benchmarks.peers.client import SideError
from benchmarks.peers.workload import Workload
from benchmarks.rollouts.catalogue import PROBES
from benchmarks.rollouts.probe_server import probe_server
from benchmarks.rollouts.scaling import SLOW_STEP_S, Cluster, Costs, simulate
from benchmarks.scaling.report import markdown

# Workers of the predictions, ten on each node, and the network card of the trainer's node: 10 Gbit/s.
COUNTS = (10, 100, 1000)
NETWORK_BYTES_PER_S = 1.25e9
N_ENVS, SLEEP_S = 8, 1e-3
# Limit of a question: some hundred batches of large fragments are fetched for it.
ASK_S = 600.0


@dataclass(frozen=True)
class Size:
    """What is observed, and for how many steps in a fragment."""

    name: str
    workload: Workload


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: values of each cost, and of each rate.
        checked: numbers of workers that are run here, after one alone.
        sizes: number of sizes that are measured, the smallest first.
    """

    rounds: int
    checked: tuple[int, ...] = (2, 4, 16)
    sizes: int = 3


def _observations(n: int, T: int) -> Workload:
    return Workload("synthetic", T=T, options={"observation_size": n})


# Numbers of four bytes, as many bytes as four images of 84 x 84 take, and one of 128 x 128 x 3 as numbers.
SIZES = (
    Size("4 numbers", _observations(4, 64)),
    Size("84 x 84 x 4 bytes", _observations(84 * 84, 64)),
    Size("128 x 128 x 3 numbers", _observations(128 * 128 * 3, 16)),
)
FULL, QUICK = Effort(5), Effort(1, checked=(2,), sizes=2)


def measure(effort: Effort, options: argparse.Namespace) -> Report:
    """Return what parts cost by size, what that predicts, and what runs here came to."""
    # Ray would write one into the home folder.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    report: Report = {
        "assumed": {"network_bytes_per_s": NETWORK_BYTES_PER_S, "step_s": SLOW_STEP_S},
        "sizes": [],
        "checks": [],
        "not_measured": {},
    }
    for size in SIZES[: effort.sizes]:
        try:
            report["sizes"].append(predicted(size, effort.rounds))
        except SideError as error:
            report["not_measured"][size.name] = str(error)
            print(f"{size.name}: {error}", flush=True)
    if report["sizes"]:
        costs = Costs(**report["sizes"][0]["costs"])
        try:
            report["checks"] = checks(costs, effort)
        except SideError as error:
            report["not_measured"]["checks"] = str(error)
            print(f"checks: {error}", flush=True)
    return report


def predicted(size: Size, rounds: int) -> dict[str, Any]:
    """Measure what the parts cost for a size, and predict the rates of many workers."""
    with probe_server(PROBES[-1].settings, size.workload) as server:
        costs = Costs(**server.ask("costs", ASK_S, n=rounds))
    # Workers of all sizes are equally fast, so that only what they send differs.
    slow = replace(costs, worker_s_per_step=SLOW_STEP_S)
    T = size.workload.T
    return {
        "name": size.name,
        "T": T,
        "costs": asdict(costs),
        "predictions": [
            simulate(slow, Cluster(n, N_ENVS, T, network_bytes_per_s=NETWORK_BYTES_PER_S))
            for n in COUNTS
        ],
    }


def checks(costs: Costs, effort: Effort) -> list[dict[str, Any]]:
    """Compare predictions with runs here; the time of a worker's step is that of one worker alone."""
    step_s = 1 / median(rates(1, effort.rounds))
    slow, found = replace(costs, worker_s_per_step=step_s), []
    for n in effort.checked:
        expected = simulate(slow, Cluster(n, N_ENVS, B=n * N_ENVS))
        measured = rates(n, effort.rounds)
        found.append(
            {
                "n_workers": n,
                "predicted": expected["steps_per_second"],
                "measured": measured,
                "step_s": step_s,
            }
        )
        print(f"{n} workers: {found[-1]}", flush=True)
    return found


def rates(n_workers: int, rounds: int) -> list[float]:
    """Return steps per second of workers here whose steps wait without computing."""
    settings = {**PROBES[-1].settings, "n_workers": n_workers}
    options = {"observation_size": 4, "sleep_s": SLEEP_S}
    workload = Workload("synthetic", B=n_workers * N_ENVS, options=options)
    with probe_server(settings, workload) as server:
        found: list[float] = server.ask("rates", ASK_S, n=rounds)["steps_per_s"]
        return found


COMMAND = Command(
    "scaling",
    "how far workers on Ray scale, by the size of an observation",
    FULL,
    QUICK,
    measure,
    markdown,
    numbers={"rounds": "values of each cost and of each rate"},
)


if __name__ == "__main__":
    COMMAND.run()
