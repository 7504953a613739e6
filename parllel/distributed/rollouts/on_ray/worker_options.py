"""Resources, places and restarts of each worker on Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ray.util.placement_group import PlacementGroup

_PLACEMENTS = ("spread", "pack", "strict_spread", "strict_pack")


@dataclass(frozen=True)
class WorkerOptions:
    """Resources, places and restarts of each worker.

    Attributes:
        cpus, gpus: resources that Ray reserves; fractions are allowed.
        resources: amounts of other resources that Ray reserves, by the names that nodes were started with,
            such as `ray start --resources='{"simulator": 2}'`. Only nodes that have them run workers.
        placement: "spread" prefers nodes with few workers. The others reserve the resources of all workers
            together: "pack" on as few nodes as possible, "strict_pack" on one node, and "strict_spread" on a
            separate node for each. A `ray.util.placement_group` places workers in any of its bundles that
            have room for them.
        restarts, within_s: maximum number of restarts of a worker within this many seconds.
        start_timeout_s: time limit in seconds for placing and starting the worker's actor.
    """

    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    placement: str | PlacementGroup = "spread"
    restarts: int = 10
    within_s: float = 600.0
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        # Checked in the trainer's process: the error of an actor would come late, and packed.
        object.__setattr__(self, "resources", dict(self.resources))  # the caller may change its own
        named = [(f"resources[{name!r}]", amount) for name, amount in self.resources.items()]
        for name, value in (("cpus", self.cpus), ("gpus", self.gpus), *named):
            if not 0 <= value < float("inf"):
                raise ValueError(f"WorkerOptions: {name}: expected 0 or more, got {value}")
        for name in {"CPU", "GPU"} & set(self.resources):
            raise ValueError(f"WorkerOptions: resources: {name!r} is set by {name.lower()}s")
        self._check_placement()
        if self.restarts < 0:
            raise ValueError(f"WorkerOptions: restarts: expected 0 or more, got {self.restarts}")
        for name, value in (("within_s", self.within_s), ("start_timeout_s", self.start_timeout_s)):
            # Not `value <= 0`, which lets NaN pass.
            if not value > 0:
                raise ValueError(f"WorkerOptions: {name}: expected more than 0, got {value}")

    def _check_placement(self) -> None:
        placement = self.placement
        if isinstance(placement, PlacementGroup):
            return
        if placement not in _PLACEMENTS:
            raise ValueError(
                f"WorkerOptions: placement: expected one of {list(_PLACEMENTS)} or a placement group, got "
                f"{placement!r}"
            )
        if placement != "spread" and not any(self.reserved.values()):
            raise ValueError(
                f"WorkerOptions: placement: expected 'spread' for workers that reserve nothing, got "
                f"{placement!r}"
            )

    @property
    def reserved(self) -> dict[str, float]:
        """All that Ray reserves for a worker, by Ray's names."""
        return {"CPU": self.cpus, "GPU": self.gpus, **self.resources}


def described(reserved: Mapping[str, float]) -> str:
    """Return amounts of resources as words: "1 CPU, 0 GPU and 2 simulator"."""
    *parts, last = [f"{amount:g} {name}" for name, amount in reserved.items()]
    return f"{', '.join(parts)} and {last}"
