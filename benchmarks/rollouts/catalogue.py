"""Which sides deliver fragments, with the settings among which each may choose.

Each peer has those of its documentation, and those that used least CPU time per step of some that were tried
once: RLlib with 1, 2 and 4 requests in flight, waits of 0 to 100 ms, and environments in processes; TorchRL
with one and four batches at once, and environments in series, in processes and in gymnasium's SyncVectorEnv.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.catalogue import Entry, Settings
from benchmarks.peers.driver import Effort
from benchmarks.peers.scenes import Scene
from benchmarks.peers.workload import Workload

VENV = "rollouts"
SIDES = "benchmarks.rollouts.sides."
N_WORKERS = 2
# Four batches may be ready when a turn begins: two in the buffer and one in each worker, or in each request.
FULL = Effort(rounds=6, turn_s=1.2, trials=1, trial_s=0.5, finals=1, warm_batches=5)
QUICK = Effort(rounds=2, turn_s=0.2, trials=1, trial_s=0.1, finals=0, settings=1, warm_batches=1)


def _all(*settings: Settings) -> Callable[[Workload, int], list[Settings]]:
    return lambda workload, cores: [{"n_workers": N_WORKERS, **one} for one in settings]


def _ours(where: str, policy: str, **more: Any) -> Settings:
    # Two batches wait in the buffer, and one in each worker while it makes the next.
    return {"where": where, "policy": policy, "queue": 9, "capacity": 2, **more}


PARLLEL = SIDES + "parllel_side:ParllelSide"
# In threads they share one interpreter: its lock allows one worker, or one with processes that step.
LOCAL = Entry(
    "parllel, local",
    PARLLEL,
    _all(
        _ours("threads", "torch"),
        _ours("threads", "torch", n_workers=1, processes=2),
    ),
    "ours",
    VENV,
)
RAY = Entry("parllel on Ray", PARLLEL, _all(_ours("ray", "torch")), "ours", VENV, halts=False)
RAY_COMPILED = Entry(
    "parllel on Ray, compiled policy",
    PARLLEL,
    _all(_ours("ray", "compiled")),
    "ours",
    VENV,
    halts=False,
)
RLLIB = Entry(
    "RLlib, IMPALA's env runners",
    SIDES + "rllib_side:RllibSide",
    _all(
        {"in_flight": 1, "wait_s": 0.0, "vectorize": "sync"},
        {"in_flight": 2, "wait_s": 0.01, "vectorize": "sync"},
    ),
    "peer",
    VENV,
    halts=False,
)
TORCHRL = Entry(
    "TorchRL, RayCollector",
    SIDES + "torchrl_side:TorchRlSide",
    _all(
        {"sync": False, "envs": "serial", "batches": 4},
        {"sync": False, "envs": "gymnasium", "batches": 4},
        {"sync": False, "envs": "gymnasium", "batches": 1},
    ),
    "peer",
    VENV,
    halts=False,
)
EVERYONE = (LOCAL, RAY, RAY_COMPILED, RLLIB, TORCHRL)


def _images(n_bytes: int) -> dict[str, Any]:
    # As vectors, of which all sides make the same policy: what is measured is the way of the bytes.
    return {"observation_size": n_bytes // 4}


SCENES = [
    Scene("cartpole", Workload("CartPole-v1"), EVERYONE, quick=True),
    Scene("halfcheetah", Workload("HalfCheetah-v5"), EVERYONE),
    # Fragments of 1.4 MB and of 12 MB.
    Scene("84x84x4", Workload("synthetic", T=50, options=_images(84 * 84 * 4)), EVERYONE),
    Scene("128x128x3", Workload("synthetic", 4, 256, options=_images(128 * 128 * 3)), EVERYONE),
]


@dataclass(frozen=True)
class Probe:
    """A figure of our Ray side, which its server finds out.

    Attributes:
        name: as in the results; what: for the table.
        question: of `RayProbeSide`; its answer is a list of values by the names of probes.
        settings: of the side; probes in a row that have the same are asked of one server.
        at_most: what every value is to keep to; aim: what would be excellent.
    """

    name: str
    what: str
    question: str
    at_most: float
    aim: float
    unit: str
    settings: Settings
    n: int = 5


_FEW = _ours("ray", "torch", n_workers=N_WORKERS)
PROBES = [
    Probe(
        "weights",
        "10 MB of weights, until 4 workers act by them, less the time of a batch",
        "publishing",
        *(0.1, 0.05, " s"),
        # 2.5 million parameters of four bytes, in two networks.
        {**_ours("ray", "torch", n_workers=4), "hidden": 1100},
        n=9,
    ),
    Probe("blocked", "CPU of a worker that waits for room", "blocking", 0.05, 0.02, "", _FEW),
    Probe(
        "memory",
        "memory of all processes, end of a run over its middle",
        "remembering",
        *(1.05, 1.01, ""),
        _FEW,
        n=1,
    ),
    Probe("notice", "a killed worker, until it is noticed", "killing", 2.0, 0.5, " s", _FEW),
    Probe(
        "recovery",
        "a killed worker, until a fragment of its successor is fetched",
        "killing",
        *(10.0, 5.0, " s"),
        _FEW,
    ),
]
