"""The leaves in other processes, beside everything in one process.

    this process                      broker             two hosts, in a process each
      environments and root  <--- records of a hop --->    leaf0 to leaf4, leaf5 to leaf9

An idle client still asks its broker for records all the time. So a side, its hosts and its broker exist only
during its turn.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from benchmarks.harness.turns import Work, in_rounds, in_turn, opened
from benchmarks.messaging.rounds import Effort, kinds
from benchmarks.messaging.sides import WAIT_S, Steps
from benchmarks.messaging.workload import create_agents
from parllel.distributed.messaging import AgentHost, KafkaBroker
from parllel.system.processes.child import Child

MEMORY = "memory"
ONE_PROCESS, TWO_HOSTS = "one process", "two hosts"
SPLIT = ("leaf[0-4]", "leaf[5-9]")
_START_S = 60.0
_END_S = 5.0

Side: TypeAlias = Callable[[], contextlib.AbstractContextManager[Callable[[], Work]]]


def serve(connection: Connection, agents: str, settings: dict[str, Any]) -> None:
    """Run a host until the environment side closes.

    agents: a pattern of ids.
    """
    with AgentHost(create_agents, [agents], **settings) as host:
        connection.send_bytes(b"started")
        host.serve()


class Hosted(Steps):
    """Vector steps of environments whose leaves run on two hosts, as work.

    Args:
        address: of the broker.
        n: number of environments.
    """

    def __init__(self, address: str, n: int) -> None:
        settings: dict[str, Any] = {
            "bootstrap": address,
            "run": f"hosted-{uuid.uuid4().hex}",
            "timeout_s": WAIT_S,
        }
        with contextlib.ExitStack() as stack:
            self._hosts = []
            for leaves in SPLIT:
                host = Child(serve, (leaves, settings), name=f"host of {leaves}")
                stack.callback(host.kill)
                self._hosts.append(host)
            # Meanwhile, as both wait for the topics.
            broker = stack.enter_context(KafkaBroker("kafka", hosts=True, **settings))
            for host in self._hosts:
                host.receive(_START_S, "while it started")
            super().__init__(broker, n=n, hosted=SPLIT)
            self._owned = stack.pop_all()

    def close(self) -> None:
        """Close the environments and the broker, and wait until the hosts have left the run."""
        with self._owned:
            super().close()
            for host in self._hosts:
                host.end(_END_S)


def beside_hosts(effort: Effort) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of a vector step, by broker and by where the leaves run, a value for each round."""
    n, starts = effort.hosted_envs, kinds()
    sides: dict[tuple[str, str], Side] = {(MEMORY, ONE_PROCESS): partial(_in_memory, n)}
    for kind, start in starts.items():
        sides[kind, ONE_PROCESS] = partial(_on_broker, start, partial(_in_one_process, n=n))
        sides[kind, TWO_HOSTS] = partial(_on_broker, start, partial(Hosted, n=n))
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind, _ in sides}
    for (kind, where), took in in_rounds(effort.rounds, sides, partial(_turn, effort)).items():
        found[kind][where] = took
    return found


def _turn(effort: Effort, side: Side) -> float:
    with side() as make, opened({"side": make}) as works:
        (took,) = in_turn(replace(effort, rounds=1), works, time.perf_counter)["side"]
        return took


@contextlib.contextmanager
def _in_memory(n: int) -> Iterator[Callable[[], Work]]:
    yield lambda: Steps(KafkaBroker(), n=n)


@contextlib.contextmanager
def _on_broker(
    start: Callable[[], Any], make: Callable[[str], Work]
) -> Iterator[Callable[[], Work]]:
    with start() as broker:
        yield partial(make, broker.address)


def _in_one_process(address: str, n: int) -> Steps:
    return Steps(KafkaBroker("kafka", bootstrap=address, timeout_s=WAIT_S), n=n)
