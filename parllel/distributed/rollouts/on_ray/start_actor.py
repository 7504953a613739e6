"""Start actors of which Ray keeps no history."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def start_actor(kind: type, *arguments: Any, **options: Any) -> Any:
    """Return the handle of a new actor; options are those of `ray.remote`.

    Otherwise Ray would record the stages of each call for its dashboard, and memory grow with the number of
    calls, which a run has no bound for: an actor by some 20 bytes a call, a trainer by half of that.
    """
    return ray.remote(kind).options(enable_task_events=False, **options).remote(*arguments)


def here() -> Any:
    """Return the scheduling strategy that keeps an actor on this process's node."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
