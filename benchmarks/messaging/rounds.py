"""The measurements: rounds of all sides in turn."""

from __future__ import annotations

import contextlib
import gc
import itertools
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import turns
from benchmarks.harness.turns import Work, in_turn, opened
from benchmarks.messaging.sides import (
    WAIT_S,
    CountingTransport,
    Resets,
    Singly,
    Steps,
    delayed,
    references,
)
from benchmarks.messaging.workload import FOUR_FLOATS, MESSAGES, N_ENVS, ROOT, SCALAR
from parllel.distributed.messaging import KafkaBroker, TopicManager
from parllel.testing import MockKafkaBroker

CALLS = "calls"
REFERENCES = "references"
ENCODED = "encoded"
CALLS_FOUR = "calls, four floats"
ENCODED_FOUR = "encoded, four floats"
SIZES = (1, N_ENVS, 8192)
TESTS = Path(__file__).resolve().parents[2] / "tests" / "distributed" / "messaging"


@dataclass(frozen=True)
class Effort(turns.Effort):
    """How long to measure.

    Attributes:
        delay_s: put between a hop and its arrival.
        sizes: numbers of environments.
        long_steps, renames: before and after which memory is compared.
        hosted_envs: number of environments whose leaves run on hosts.
    """

    delay_s: float = 0.02
    sizes: tuple[int, ...] = SIZES
    long_steps: int = 20_000
    renames: int = 1000
    hosted_envs: int = N_ENVS


FULL = Effort(10, 1.0)
QUICK = Effort(1, 0.05, 0.002, (1, 8, 32), 50, 20, 4)


def steps(effort: Effort) -> dict[str, list[float]]:
    """Return the CPU seconds of a vector step by each side in memory, a value for each round."""
    sides: dict[str, Callable[[], Work]] = {
        CALLS: lambda: Steps(None),
        REFERENCES: lambda: Steps(references()),
        ENCODED: lambda: Steps(KafkaBroker()),
        CALLS_FOUR: lambda: Steps(None, FOUR_FLOATS),
        ENCODED_FOUR: lambda: Steps(KafkaBroker(), FOUR_FLOATS),
    }
    with opened(sides) as works:
        return in_turn(effort, works)


def hops(effort: Effort) -> list[float]:
    """Return the seconds of a vector step whose hops are delayed, for each round."""
    with opened({"delayed": lambda: Steps(delayed(effort.delay_s))}) as works:
        return in_turn(effort, works, time.perf_counter)["delayed"]


def kinds() -> dict[str, Callable[[], Any]]:
    """Return functions that start a broker, for each kind that is installed."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    from kafka_brokers import TANSU, TansuBroker  # type: ignore[import-not-found]

    return {"mock": MockKafkaBroker, **({"tansu": TansuBroker} if TANSU.exists() else {})}


@contextlib.contextmanager
def brokers() -> Iterator[dict[str, str]]:
    """Start a broker of each kind that is installed; yield their addresses by kind, and end them."""
    with contextlib.ExitStack() as stack:
        yield {kind: stack.enter_context(start()).address for kind, start in kinds().items()}


def on_kafka(effort: Effort) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of a vector step ("hops") and of a message ("single") on each broker there is."""
    found = {}
    with brokers() as addresses:
        for kind, address in addresses.items():

            def broker(address: str = address) -> KafkaBroker:
                return KafkaBroker(mode="kafka", bootstrap=address, timeout_s=WAIT_S)

            sides: dict[str, Callable[[], Work]] = {
                "hops": lambda: Steps(broker()),
                "single": lambda: Singly(broker()),
            }
            with opened(sides) as works:
                found[kind] = in_turn(effort, works, time.perf_counter)
    return found


def sizes(effort: Effort) -> dict[str, dict[int, list[float]]]:
    """Return the CPU seconds of a message and of a reset among different numbers of environments."""
    found: dict[str, dict[int, list[float]]] = {}
    for what, side, units in (("message", Steps, MESSAGES), ("reset", Resets, 0)):
        sides: dict[str, Callable[[], Work]] = {
            str(n): partial(_of_size, side, n) for n in effort.sizes
        }
        with opened(sides) as works:
            took = in_turn(effort, works)
        found[what] = {n: [s / (n * units or 1) for s in took[str(n)]] for n in effort.sizes}
    return found


def _of_size(side: type[Steps], n: int) -> Steps:
    return side(KafkaBroker(), n=n)


def wire() -> dict[str, float]:
    """Return the records and bytes of a vector step, and the bytes that a broker holds for an address."""
    found: dict[str, float] = {}
    for name, value in (("scalar", SCALAR), ("four_floats", FOUR_FLOATS)):
        transport = CountingTransport()
        broker = KafkaBroker(transport=transport)
        side = Steps(broker, value)
        side()
        transport.records = transport.bytes = 0
        side()
        found[f"{name}_records"], found[f"{name}_bytes"] = transport.records, transport.bytes
        addresses = broker.get_environment_topics(side.envs.envs[0].env_id)
        found["addresses"] = N_ENVS * len(addresses)
        side.close()
    return {**found, "address_bytes": bytes_per_address()}


def bytes_per_address() -> float:
    """Return how many bytes a broker takes for each address that is in use."""
    with KafkaBroker() as broker:
        gc.collect()
        tracemalloc.start()
        channels = [
            broker.channel(TopicManager.action_topic(ROOT, f"leaf{i}", f"env{n}"), f"env{n}")
            for n in range(N_ENVS)
            for i in range(MESSAGES)
        ]
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return held / len(channels)


def growth(effort: Effort) -> dict[str, float]:
    """Return by how many bytes the memory of this process grew over a long run, and over many renames."""
    side = Steps(KafkaBroker(), n=2)
    names = itertools.count()

    def rename() -> None:
        side.envs.set_env_id(0, f"renamed-{next(names)}")
        side.envs.reset([0])
        side()

    try:
        return {"steps": _grown(side, effort.long_steps), "renames": _grown(rename, effort.renames)}
    finally:
        side.close()


def _grown(work: Callable[[], object], times: int) -> float:
    for _ in range(max(times // 10, 10)):
        work()
    before = _resident_bytes()
    for _ in range(times):
        work()
    return _resident_bytes() - before


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
