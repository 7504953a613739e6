"""Starting actors without Ray's history of their calls."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def start_actor(kind: type, *arguments: Any, **options: Any) -> Any:
    """Start an actor with the options of `ray.remote`, and return its handle.

    Task events are disabled: Ray would record every call for its dashboard, and memory would grow without
    bound during a run, by some 20 bytes per call in an actor and half of that in the trainer.
    """
    return ray.remote(kind).options(enable_task_events=False, **options).remote(*arguments)


def here() -> Any:
    """Return the scheduling strategy that places an actor on this process's node."""
    # Not soft, because on another node it would survive this one.
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def node_address() -> str:
    """Return the IP address of this process's node, at which Ray has other nodes reach it."""
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return address
