"""The sides, and the settings from which the best of each is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness.machine import usable_cores


@dataclass(frozen=True)
class Variant:
    """One way to run a side."""

    name: str
    torch_threads: int
    options: dict[str, Any]


@dataclass(frozen=True)
class Side:
    """One library.

    Attributes:
        name: for the command line and the results.
        title: for people.
        module: what is started, of this package.
        venv: the virtual environment that it needs, see `peers/venvs.py`; None for the Python that runs this.
        variants: ways to run it, the one that its users take first.
    """

    name: str
    title: str
    module: str
    venv: str | None
    variants: tuple[Variant, ...]


def _workers() -> int:
    """Return how many processes to start beside the main one, which steps environments as well."""
    return max(1, len(usable_cores()) - 1)


SHARED: dict[str, Any] = {"n_workers": _workers(), "participate": True}
GROUPS: dict[str, Any] = {"n_workers": _workers(), "n_groups": 2}
SMALL_WITH_WORKERS = Variant(
    "participating main, small policy", 1, {"synchronized": SHARED, "handler": "small"}
)
ELSEWHERE = (
    Variant("participating main, torch", 1, {"synchronized": SHARED}),
    Variant("this process, small policy", 1, {"handler": "small"}),
    Variant("this process, torch", 1, {}),
    Variant(
        "alternating groups, small policy",
        1,
        {"synchronized": GROUPS, "handler": "small", "sampler": "alternating"},
    ),
)

IN_TURN = Side(
    "in_turn",
    "parllel, in turn",
    "ours",
    None,
    (
        Variant(
            "small policy in main and worker",
            1,
            {"synchronized": SHARED, "handler": "small", "sampler": "rollout"},
        ),
        SMALL_WITH_WORKERS,
        *ELSEWHERE,
    ),
)
# Policies in workers see observations before a transform does.
IN_TURN_NORMALIZED = replace(IN_TURN, variants=(SMALL_WITH_WORKERS, *ELSEWHERE))
PROCESS_ALONE = tuple(
    Variant(f"sampling process, {handler} policy", 1, {"overlapped": True, "handler": handler})
    for handler in ("small", "torch")
)
OVERLAPPED_NORMALIZED = Side("overlapped", "parllel, overlapped", "ours", None, PROCESS_ALONE)
OVERLAPPED = replace(
    OVERLAPPED_NORMALIZED,
    variants=(
        *PROCESS_ALONE,
        # The worker gets a core whenever learning waits for a batch.
        Variant(
            "sampling process and worker, small policy",
            1,
            {
                "overlapped": True,
                "synchronized": SHARED,
                "handler": "small",
                "sampler": "rollout",
            },
        ),
    ),
)
_COMPILED_SMALL: dict[str, Any] = {"compiled_envs": True, "handler": "small"}
COMPILED = Side(
    "compiled",
    "parllel, compiled environments",
    "ours",
    None,
    (
        Variant("sampling process, small policy", 1, {**_COMPILED_SMALL, "overlapped": True}),
        Variant("this process, small policy", 1, _COMPILED_SMALL),
        Variant(
            "small policy in main and worker",
            1,
            {**_COMPILED_SMALL, "synchronized": SHARED, "sampler": "rollout"},
        ),
    ),
)
SB3 = Side(
    "sb3",
    "Stable-Baselines3",
    "sb3_side",
    "peers",
    (
        Variant("dummy, 1 thread", 1, {"vec_env": "dummy"}),
        Variant("dummy, 2 threads", 2, {"vec_env": "dummy"}),
        Variant("subproc, 1 thread", 1, {"vec_env": "subproc"}),
    ),
)
CLEANRL_STYLE = Side(
    "cleanrl_style",
    "CleanRL's way by hand",
    "cleanrl_style",
    None,
    (Variant("1 thread", 1, {}), Variant("2 threads", 2, {})),
)
OURS = (IN_TURN.name, OVERLAPPED.name, COMPILED.name)
