"""Catalogue of sides, with the settings from which the best of each is chosen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.peers.venvs import python_of
from benchmarks.peers.workload import Workload

Settings = dict[str, Any]
SIDES = "benchmarks.peers.sides."
# More processes than this for one side prove nothing on few cores and take minutes to start.
MAX_PROCESSES = 32


@dataclass(frozen=True)
class Entry:
    """A side as the driver sees it.

    Attributes:
        name: in tables.
        side: `module:Class` for the server.
        settings: returns the settings to try, from a workload and the number of cores.
        kind: a "peer" counts where the best peer is meant; a "native" one, whose environments are not
            Python, does not; "compiled" are ours with compiled environments.
        venv: the virtual environment it needs; without it "peers" serves if it is there, else this Python.
        same_steps: whether it resets within the step and takes the workload's seeds, so that its first
            batch must be the ideal's.
        halts: whether it is halted while it is not measured; without that, it must then do nothing by itself.
    """

    name: str
    side: str
    settings: Callable[[Workload, int], list[Settings]]
    kind: Literal["ideal", "ours", "compiled", "peer", "native", "model"]
    venv: str | None = None
    same_steps: bool = False
    halts: bool = True

    @property
    def python(self) -> str | None:
        """The interpreter to run it with, or None if its virtual environment has not been made."""
        if self.venv is None:
            return str(python_of("peers") or sys.executable)
        python = python_of(self.venv)
        return None if python is None else str(python)


def _processes_each(
    settings: list[Settings],
) -> Callable[[Workload, int], list[Settings]]:
    """Return settings with a process for each environment, none where that is too many."""
    return lambda workload, cores: settings if workload.B <= MAX_PROCESSES else []


def _always(*settings: Settings) -> Callable[[Workload, int], list[Settings]]:
    return lambda workload, cores: list(settings)


def _worker_counts(workload: Workload, cores: int) -> list[int]:
    return [n for n in range(1, cores + 1) if workload.B % n == 0]


def ours(workload: Workload, cores: int) -> list[Settings]:
    """Serial; with the main process taking part, one core left to it; only workers."""
    settings: list[Settings] = [{"cage": "vectorized"}]
    for n_workers in range(1, cores + 1):
        synchronized = {"cage": "synchronized", "n_workers": n_workers}
        if n_workers < cores:
            settings.append({**synchronized, "participate": True})
        settings.append({**synchronized, "participate": False})
    return settings


def ours_with_policy(policy: str) -> Callable[[Workload, int], list[Settings]]:
    """Return the settings of `ours`, and two groups that alternate where there are workers."""

    def settings(workload: Workload, cores: int) -> list[Settings]:
        plain = ours(workload, cores)
        alternating = [{**one, "n_groups": 2} for one in plain if one["cage"] == "synchronized"]
        return [{**one, "policy": policy} for one in plain + alternating]

    return settings


def pufferlib_workers(workload: Workload, cores: int) -> list[Settings]:
    """Workers from one to as many as cores, all environments at once or one worker's at a time."""
    settings = []
    for n in _worker_counts(workload, cores):
        settings.append({"backend": "multiprocessing", "num_workers": n, "batch_size": workload.B})
        if n > 1:
            batch_size = workload.B // n
            settings.append(
                {"backend": "multiprocessing", "num_workers": n, "batch_size": batch_size}
            )
    return settings


def ideals(workload: Workload, cores: int) -> list[Settings]:
    """Where processes may run: anywhere, or each on a core of its own."""
    return [{"pinned": False}, {"pinned": True}]


AUTORESETS = ("NextStep", "SameStep")
IDEAL = Entry("ideal", SIDES + "ideal_side:IdealSide", ideals, "ideal", same_steps=True)
OURS = Entry("parllel", SIDES + "parllel_side:ParllelSide", ours, "ours", same_steps=True)
OURS_COMPILED_ENVS = Entry(
    "parllel, compiled envs",
    SIDES + "compiled_side:CompiledSide",
    ours,
    "compiled",
    same_steps=True,
)
POLICY = SIDES + "policy_side:"
OURS_TORCH = Entry(
    "parllel, torch policy", POLICY + "ParllelPolicySide", ours_with_policy("torch"), "ours"
)
OURS_COMPILED = Entry(
    "parllel, compiled policy", POLICY + "ParllelPolicySide", ours_with_policy("compiled"), "ours"
)
FORWARD = Entry("forward pass", POLICY + "ForwardSide", _always({}), "model")
CLEANRL_STYLE = Entry(
    "CleanRL-style loop",
    POLICY + "CleanRlStyleSide",
    lambda workload, cores: [
        {"autoreset": mode, "threads": threads}
        for mode in AUTORESETS
        for threads in sorted({1, cores})
    ],
    "peer",
)
GYMNASIUM_SYNC = Entry(
    "gymnasium SyncVectorEnv",
    SIDES + "gymnasium_side:GymnasiumSide",
    _always(*({"vector": "sync", "autoreset": mode} for mode in AUTORESETS)),
    "peer",
)
GYMNASIUM_ASYNC = Entry(
    "gymnasium AsyncVectorEnv",
    SIDES + "gymnasium_side:GymnasiumSide",
    _processes_each(
        [
            {"vector": "async", "autoreset": mode, "shared_memory": shared}
            for mode in AUTORESETS
            for shared in (True, False)
        ]
    ),
    "peer",
)
SB3 = "stable_baselines3_side:StableBaselines3Side"
PUFFERLIB = SIDES + "pufferlib_side:PufferLibSide"
PEERS = [
    GYMNASIUM_SYNC,
    GYMNASIUM_ASYNC,
    Entry(
        "SB3 DummyVecEnv",
        SIDES + SB3,
        _always({"vector": "dummy"}),
        "peer",
        "peers",
        same_steps=True,
    ),
    Entry(
        "SB3 SubprocVecEnv",
        SIDES + SB3,
        _processes_each(
            [{"vector": "subproc", "start_method": how} for how in ("forkserver", "fork")]
        ),
        "peer",
        "peers",
        same_steps=True,
    ),
    Entry(
        "Tianshou DummyVectorEnv",
        SIDES + "tianshou_side:TianshouSide",
        _always({"vector": "dummy"}),
        "peer",
        "peers",
        same_steps=True,
    ),
    Entry(
        "Tianshou Subproc, Shmem",
        SIDES + "tianshou_side:TianshouSide",
        _processes_each([{"vector": "subproc"}, {"vector": "shmem"}]),
        "peer",
        "peers",
        same_steps=True,
    ),
    Entry("PufferLib Serial", PUFFERLIB, _always({"backend": "serial"}), "peer", "pufferlib"),
    Entry("PufferLib Multiprocessing", PUFFERLIB, pufferlib_workers, "peer", "pufferlib"),
    Entry(
        "TorchRL SerialEnv",
        SIDES + "torchrl_side:TorchRlSide",
        _always({"vector": "serial", "threads": 1}),
        "peer",
        "peers",
    ),
    Entry(
        "TorchRL ParallelEnv",
        SIDES + "torchrl_side:TorchRlSide",
        _processes_each([{"vector": "parallel", "threads": 1, "mp_start_method": "fork"}]),
        "peer",
        "peers",
    ),
    Entry(
        "EnvPool (C++)",
        SIDES + "envpool_side:EnvPoolSide",
        lambda workload, cores: [{"num_threads": n} for n in range(1, cores + 1)],
        "native",
        "peers",
    ),
]
ENVPOOL = PEERS[-1]
MAIN_PROCESS = Entry(
    "parllel, main process",
    SIDES + "main_process_side:MainProcessSide",
    lambda workload, cores: [
        {"cage": "synchronized", "n_workers": max(1, cores - 1), "participate": False}
    ],
    "ours",
)
