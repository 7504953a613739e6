"""Throughput of 1 to 1,000 workers, from a queue simulation with measured costs.

    python -m benchmarks.rollouts.scaling

prints what the committed results say.

    workers --messages of E fragments--> buffer's event loop --B fragments--> trainer
            --reports--> manager's event loop

Each part has a core of its own, and does one thing at a time for as long as it took here. Assumed, not
measured: a core for each worker, messages that arrive after `NETWORK_S` and the time that the card of the
trainer's node takes for their bytes, one after the other (without limit in the tables here), equal turns of
all workers, a version of the weights each second, and a trainer that only fetches. So the rates are upper
bounds. Learning, another node's network card and garbage of Python come on top, and an object store is not
part of a fragment's way.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.harness.answers import table
from benchmarks.harness.results import load

COUNTS = (1, 10, 100, 1000)
NETWORK_S = 0.5e-3
# As a RolloutWorkerWrapper does, and what the RolloutManager lets all of them do.
REPORT_S, MAX_REPORTS_PER_S = 0.5, 100.0
# Each is the answer to a report of each worker.
VERSIONS_PER_S = 1.0
# At least, and at least so many turns of a worker.
SIMULATED_S, SIMULATED_TURNS = 5.0, 100
# What a step takes in each of the tables: CartPole's as measured, and an environment that computes for long.
SLOW_STEP_S = 1e-3


@dataclass(frozen=True)
class Costs:
    """Seconds of CPU time, as `RayProbeSide.costs` returns them.

    Attributes:
        worker_s_per_step: of a worker, with what it takes to send its fragments.
        buffer_s_per_fragment: to take one in and hand it out, beyond what an actor uses that is never called.
        trainer_s_per_fragment: to fetch and unpack one.
        manager_s_per_report, statistics_s_per_call: of these actors, likewise.
        idle_share: of a core, by an actor that is never called.
        fragment_bytes: of its arrays.
    """

    worker_s_per_step: float
    buffer_s_per_fragment: float
    trainer_s_per_fragment: float
    manager_s_per_report: float
    statistics_s_per_call: float
    idle_share: float
    fragment_bytes: float


@dataclass(frozen=True)
class Cluster:
    """What is simulated.

    Attributes:
        n_workers: each with `n_envs` environments.
        T: steps of a fragment.
        B: fragments that the trainer fetches at once; also half of what the buffer holds.
        network_bytes_per_s: of the network card of the node of buffer and trainer.
    """

    n_workers: int
    n_envs: int = 8
    T: int = 64
    B: int = 64
    network_bytes_per_s: float = math.inf


def simulate(costs: Costs, cluster: Cluster, simulated_s: float = SIMULATED_S) -> dict[str, Any]:
    """Return steps per second, shares of a core that each part uses, and the part that is used up first."""
    per_turn, capacity = cluster.n_envs, max(2 * cluster.B, cluster.n_envs)
    turn_s = per_turn * cluster.T * costs.worker_s_per_step
    simulated_s = max(simulated_s, SIMULATED_TURNS * turn_s)
    add_s = per_turn * costs.buffer_s_per_fragment
    fetch_s = cluster.B * costs.trainer_s_per_fragment
    transfer_s = per_turn * costs.fragment_bytes / cluster.network_bytes_per_s
    # Events are (time, number, what, worker); the number keeps the order of those of one time.
    events: list[tuple[float, int, str, int]] = []
    number = 0

    def after(time: float, what: str, worker: int = -1) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (time, number, what, worker))

    for worker in range(cluster.n_workers):
        # Spread over a turn, as workers are that have run for a while.
        after(turn_s * (worker + 1) / cluster.n_workers, "made", worker)
    messages: deque[int] = deque()
    unsent = [False] * cluster.n_workers  # a turn is ready, and the one before is not acknowledged
    sending = [False] * cluster.n_workers
    stored = fetched = 0
    adding = fetching = False
    busy = {"buffer": 0.0, "trainer": 0.0, "network": 0.0}
    now = transferred = 0.0
    while now < simulated_s:
        now, _, what, worker = heapq.heappop(events)
        if what == "made":
            if sending[worker]:
                unsent[worker] = True
            else:
                sending[worker] = True
                transferred = max(transferred, now) + transfer_s
                busy["network"] += transfer_s
                after(transferred + NETWORK_S, "arrived", worker)
                after(now + turn_s, "made", worker)
        elif what == "arrived":
            messages.append(worker)
        elif what == "added":
            stored, adding = stored + per_turn, False
            after(now + NETWORK_S, "acknowledged", worker)
        elif what == "acknowledged":
            sending[worker] = False
            if unsent[worker]:
                unsent[worker] = False
                after(now, "made", worker)
        else:
            fetched, fetching = fetched + cluster.B, False
        if messages and not adding and stored + per_turn <= capacity:
            adding = True
            busy["buffer"] += add_s
            after(now + add_s, "added", messages.popleft())
        if stored >= cluster.B and not fetching:
            stored, fetching = stored - cluster.B, True
            busy["trainer"] += fetch_s
            after(now + fetch_s + 2 * NETWORK_S, "fetched")
    return _summary(costs, cluster, fetched * cluster.T / now, busy, turn_s, now)


def _summary(
    costs: Costs,
    cluster: Cluster,
    rate: float,
    busy: Mapping[str, float],
    turn_s: float,
    now: float,
) -> dict[str, Any]:
    possible = cluster.n_workers * cluster.n_envs * cluster.T / turn_s
    reports = min(cluster.n_workers / REPORT_S, MAX_REPORTS_PER_S)
    reports += cluster.n_workers * VERSIONS_PER_S
    calls = reports + rate / cluster.T / cluster.B
    shares = {
        **{part: min(1.0, seconds / now) for part, seconds in busy.items()},
        # Above 1 they cannot keep up: reports are late, and with them weights and news.
        "manager": reports * costs.manager_s_per_report + costs.idle_share,
        "statistics": calls * costs.statistics_s_per_call + costs.idle_share,
        "workers": min(1.0, rate / possible),
    }
    return {
        "n_workers": cluster.n_workers,
        "steps_per_second": round(rate),
        "efficiency": round(rate / possible, 3),
        # Above 1 a part would need more than its core.
        "shares": {part: round(share, 4) for part, share in shares.items()},
        "first_used_up": max(shares, key=lambda part: shares[part]),
        "megabytes_per_second": round(rate / cluster.T * costs.fragment_bytes / 1e6, 1),
    }


def scaling(measured: Mapping[str, float]) -> dict[str, Any]:
    """Return the tables for the results: of the measured environment, and of a slow one."""
    costs = Costs(**measured)
    slow = Costs(**{**measured, "worker_s_per_step": SLOW_STEP_S})
    return {
        "costs": asdict(costs),
        "assumed": {
            "network_s": NETWORK_S,
            "slow_step_s": SLOW_STEP_S,
            "versions_per_s": VERSIONS_PER_S,
        },
        "measured_step": [simulate(costs, Cluster(n)) for n in COUNTS],
        "slow_step": [simulate(slow, Cluster(n)) for n in COUNTS],
    }


def scaling_table(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of both tables as one, in Markdown."""
    step_s = {
        "measured_step": found["costs"]["worker_s_per_step"],
        "slow_step": found["assumed"]["slow_step_s"],
    }
    rows = [
        (
            f"{one['n_workers']:,}",
            f"{seconds * 1e6:,.0f} us",
            f"{one['steps_per_second']:,}",
            f"{one['efficiency']:.0%}",
            *(f"{one['shares'][part]:.1%}" for part in ("buffer", "trainer", "manager")),
            one["first_used_up"],
        )
        for kind, seconds in step_s.items()
        for one in found[kind]
    ]
    heads = ("workers", "step", "steps/s", "of the workers' own", "buffer", "trainer", "manager")
    return table((*heads, "used up first"), rows, "rrrrrrrl")


if __name__ == "__main__":
    print("\n".join(scaling_table(load("rollouts")["scaling"])))
