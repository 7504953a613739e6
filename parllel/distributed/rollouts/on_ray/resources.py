"""What the nodes of a cluster have room for."""

from __future__ import annotations

from typing import Any

import ray

from parllel.distributed.rollouts.on_ray.worker_options import WorkerOptions


def check_room(n_workers: int, options: WorkerOptions) -> None:
    """Raise a ValueError if there could never be so many workers: Ray would let them wait without a word."""
    nodes: list[Any] = ray.nodes()  # type: ignore[no-untyped-call]
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    room = sum(_room(node, options) for node in resources)
    if room < n_workers:
        have = "; ".join(f"{node.get('CPU', 0):g} and {node.get('GPU', 0):g}" for node in resources)
        raise ValueError(
            f"RayRollouts: n_workers: expected at most {room}, for {options.cpus:g} CPUs and "
            f"{options.gpus:g} GPUs each on nodes that have {have}, got {n_workers}; lower "
            "WorkerOptions.cpus, which may be a part of one"
        )


def free_resources() -> str:
    """Return which CPUs and GPUs of the cluster are not reserved, for messages."""
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return f"the cluster has {free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs free"


def _room(node: dict[str, float], options: WorkerOptions) -> int:
    """Return how many workers a node has room for."""
    asked = {"CPU": options.cpus, "GPU": options.gpus}
    # A little more, as parts of a CPU need not add up exactly.
    rooms = [int(node.get(name, 0) / part + 1e-6) for name, part in asked.items() if part]
    return min(rooms, default=1_000_000)
