"""An agent host in a process of its own."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from worlds import TREES, Node, make_agents

from parllel.distributed.messaging import Agent, AgentHost
from parllel.system.processes.child import Child

LONG_S = 60.0
TREE = TREES["several roots"]


class FailingNode(Node):
    """Raises in its third decision of an episode."""

    def decide(self, observation: Any, action: Any) -> Any:
        if observation[1] == 2:
            raise ValueError("third decision")
        return super().decide(observation, action)


def create_agents(env_id: str) -> Mapping[str, Agent]:
    return make_agents(TREE)


def create_failing_agents(env_id: str) -> Mapping[str, Agent]:
    return make_agents(TREE, cls=FailingNode)


def create_other_agents(env_id: str) -> Mapping[str, Agent]:
    return make_agents({**TREE, "more": {}})


def create_grid(env_id: str) -> Mapping[str, Agent]:
    """The agents of the example."""
    sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "messaging"))
    import grid

    agents: Mapping[str, Agent] = grid.create_agents(env_id)
    return agents


def serve(
    connection: Connection, factory: Any, agents: list[str], settings: dict[str, Any]
) -> None:
    """Run a host, and send the states of its agents at the end; an error is sent by the process."""

    def end(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, end)
    with AgentHost(factory, agents, **settings) as host:
        connection.send_bytes(b"started")
        with suppress(KeyboardInterrupt):
            host.serve()
        connection.send_bytes(pickle.dumps(host.state()))


Start = Callable[..., Child]


@contextmanager
def hosts_of(address: str, run: str) -> Iterator[Start]:
    """Yield a function that starts hosts for a run; all end with the block."""
    with ExitStack() as stack:

        def start(*agents: str, factory: Any = create_agents, **settings: Any) -> Child:
            settings = {"bootstrap": address, "run": run, "timeout_s": 20.0, **settings}
            child = Child(serve, (factory, list(agents), settings), name=f"host of {agents}")
            stack.callback(child.end, 0.0)
            assert child.receive(LONG_S, "starting") == b"started"
            return child

        yield start
