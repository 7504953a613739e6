"""Where the workers on Ray are placed: on any nodes, or in the bundles of a placement group."""

# RayRollouts      makes it before its manager, and removes what it has reserved after the workers
# RolloutManager   starts each worker, and each of its replacements, by `strategy`
# RayLearners      makes it before its actors, and starts them by `strategy`

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from parllel.distributed.rollouts.on_ray.worker_options import WorkerOptions, described
from parllel.errors import WorkerTimeoutError

# Length of one wait, in which Ctrl-C is not handled, in whole seconds.
_SLICE_S = 1


class Purpose(NamedTuple):
    """What the places are for, in the words of messages.

    Attributes:
        owner, argument: what asks for them, and its argument for their number.
        nouns: what is placed.
        n_here: how many of those asked for need no place, as this process is one of them.
    """

    owner: str = "RayRollouts"
    argument: str = "n_workers"
    nouns: str = "workers"
    n_here: int = 0

    def split(self, room: int) -> str:
        """Return what a number includes besides the `room` that there is."""
        return f" (this process and {room} {self.nouns})" if self.n_here else ""


_FOR_ROLLOUTS = Purpose()


class WorkerPlaces:
    """The places of the workers of a run, which are refused if the cluster can never have them.

    Unless workers are placed by "spread", which only prefers nodes without other workers, the places of all
    workers are reserved together: in the user's placement group, or in one that is removed by `remove`.

    Args:
        n_workers: number of workers.
        options: resources of each worker, and how they are placed.
        purpose: for messages.

    Raises:
        ValueError: if the cluster, or the user's group, has too few resources.
        WorkerTimeoutError: if the resources are not free within `options.start_timeout_s`.

    Attributes:
        strategy: Ray's scheduling strategy for the actors of the workers.
    """

    def __init__(
        self, n_workers: int, options: WorkerOptions, purpose: Purpose = _FOR_ROLLOUTS
    ) -> None:
        self._own: PlacementGroup | None = None
        self.strategy: Any = "SPREAD"
        check_room(n_workers, options, purpose)
        placement = options.placement
        if isinstance(placement, PlacementGroup):
            group = placement
        else:
            if placement == "spread":
                return
            bundle = {name: amount for name, amount in options.reserved.items() if amount}
            group = self._own = placement_group([bundle] * n_workers, placement.upper())
        try:
            _await(group, n_workers, options, purpose)
        except BaseException:  # includes Ctrl-C: nobody holds this object to remove it
            self.remove()
            raise
        self.strategy = PlacementGroupSchedulingStrategy(group)

    def remove(self) -> None:
        """Free what was reserved here, which ends the actors in it. Idempotent."""
        group, self._own = self._own, None
        if group is not None:
            remove_placement_group(group)


def check_room(n_workers: int, options: WorkerOptions, purpose: Purpose) -> None:
    """Raise ValueError if the cluster, or a placement group, can never run so many workers.

    Ray would let them wait silently.
    """
    placement, note, hint = options.placement, "", ""
    if isinstance(placement, PlacementGroup):
        parts: Sequence[Mapping[str, float]] = placement.bundle_specs
        room = sum(_room(bundle, options) for bundle in parts)
        where = "in the placement group, whose bundles have"
    else:
        nodes: list[Any] = ray.nodes()  # type: ignore[no-untyped-call]
        # Of all resources, not only free ones: others may release theirs while workers wait.
        parts = [node["Resources"] for node in nodes if node["Alive"]]
        rooms = [_room(node, options) for node in parts]
        room, why = {
            "strict_spread": (sum(room > 0 for room in rooms), "puts each on a separate one"),
            "strict_pack": (max(rooms, default=0), "puts all on one"),
        }.get(placement, (sum(rooms), ""))
        where, note = "on nodes that have", why and f" (placement={placement!r} {why})"
        hint = "; lower the amounts of WorkerOptions, which may be fractions"
    if room < n_workers:
        have = "; ".join(_described_part(part, options) for part in parts)
        most = f"{room + purpose.n_here}{purpose.split(room)}"
        raise ValueError(
            f"{purpose.owner}: {purpose.argument}: expected at most {most}, for "
            f"{described(options.reserved)} each {where} {have}{note}, got {n_workers + purpose.n_here}{hint}"
        )


def _await(group: PlacementGroup, n_workers: int, options: WorkerOptions, purpose: Purpose) -> None:
    """Wait until the resources of a group are reserved."""
    deadline = monotonic() + options.start_timeout_s
    while not group.wait(_SLICE_S):
        if monotonic() >= deadline:
            placement = options.placement
            how = "the placement group" if isinstance(placement, PlacementGroup) else placement
            raise WorkerTimeoutError(
                f"{purpose.owner}: placement: expected the resources of {n_workers} {purpose.nouns} "
                f"({described(options.reserved)} each, {how}) to be free within "
                f"{options.start_timeout_s:g} s; {free_resources(options)}"
            )


def free_resources(options: WorkerOptions) -> str:
    """Describe what is free of the resources of a worker, for messages."""
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return f"the cluster has {_described_part(free, options)} free"


def _described_part(resources: Mapping[str, float], options: WorkerOptions) -> str:
    return described({name: resources.get(name, 0.0) for name in options.reserved})


def _room(resources: Mapping[str, float], options: WorkerOptions) -> int:
    """Return the number of workers that fit on a node or in a bundle."""
    # With a tolerance, because fractions of a CPU need not add up exactly.
    rooms = [
        int(resources.get(name, 0) / part + 1e-6) for name, part in options.reserved.items() if part
    ]
    return min(rooms, default=1_000_000)
