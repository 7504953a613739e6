"""The measurements: all ways and ideals in turn, in each of several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from benchmarks.distributed.ideals import (
    BareActor,
    BareBroker,
    BareHttp,
    BareLines,
    BareLoop,
    BarePipe,
    bare_server,
)
from benchmarks.distributed.sides import (
    AsRoot,
    OnRay,
    Operators,
    OverProtobuf,
    by_calls,
    in_process,
    in_workers,
    over_json,
    over_kafka,
    served,
)
from benchmarks.harness import turns
from benchmarks.harness.turns import Work, in_turn, opened
from parllel.testing import MockKafkaBroker

# By where the policy runs, from near to far: the least that its wire takes.
IDEALS = {
    "in this process": "bare loop",
    "in worker processes": "bare pipe",
    "as operators": "bare lines of JSON",
    "over JSON": "bare HTTP",
    "over protobuf, one by one": "bare HTTP, one by one",
    "in a Ray actor": "bare actor of Ray",
    "as root agent, in memory": "agents that call each other",
    "as root agent, over Kafka": "bare broker",
}


@dataclass(frozen=True)
class Effort(turns.Effort):
    """How long to measure.

    Attributes:
        sizes: numbers of environments.
    """

    sizes: tuple[int, ...] = (1, 64)


FULL = Effort(7, 1.0)
QUICK = Effort(1, 0.05, (1, 4))


def distributed(effort: Effort) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of a step of one environment, by number of environments and side, for each round."""
    found = {}
    with ExitStack() as stack:
        url = stack.enter_context(served())
        bare_url, _ = stack.enter_context(bare_server())
        kafka = stack.enter_context(MockKafkaBroker()).address
        if find_spec("ray") is not None:
            from parllel.distributed.rollouts.on_ray import RaySession

            stack.enter_context(RaySession(num_cpus=2))
        for n in effort.sizes:
            print(f"{n} environments", flush=True)
            with opened(_sides(n, url, bare_url, kafka)) as works:
                found[str(n)] = in_turn(effort, works, time.perf_counter)
    return found


def _sides(n: int, url: str, bare_url: str, kafka: str) -> dict[str, Callable[[], Work]]:
    sides: dict[str, Callable[[], Work]] = {
        "in this process": partial(in_process, n),
        "bare loop": partial(BareLoop, n),
        "in worker processes": partial(in_workers, n),
        "bare pipe": partial(BarePipe, n),
        "as operators": partial(Operators, n),
        "bare lines of JSON": partial(BareLines, n),
        "over JSON": partial(over_json, n, url),
        "bare HTTP": partial(BareHttp, n, bare_url),
        "over protobuf, one by one": partial(OverProtobuf, n, url),
        "bare HTTP, one by one": partial(BareHttp, n, bare_url, one_by_one=True),
        "as root agent, in memory": partial(AsRoot, n),
        "agents that call each other": partial(by_calls, n),
        "as root agent, over Kafka": partial(over_kafka, n, kafka),
        "bare broker": partial(BareBroker, n, kafka),
    }
    if find_spec("ray") is not None:
        sides["in a Ray actor"] = partial(OnRay, n)
        sides["bare actor of Ray"] = partial(BareActor, n)
    return sides
