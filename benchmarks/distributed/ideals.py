"""Lower bounds of each transport: the same environments and policy without the library between."""

from __future__ import annotations

import contextlib
import multiprocessing
import secrets
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.distributed.lean import Lean
from benchmarks.distributed.sides import CARTPOLE, WAIT_S, T, make_env, n_workers
from benchmarks.operators.sides import Echo
from benchmarks.remote.processes import module, server
from benchmarks.remote.raw_client import RawClient
from parllel.distributed.wire import json_bytes

HOPS = 4  # of a step of a hierarchy of two levels


class BareLoop:
    """Environments of this process, in a loop."""

    def __init__(self, n: int, first: int = 0) -> None:
        self._envs = [make_env() for _ in range(n)]
        self._numbers = range(n)
        self.policy = Lean()
        self.seen = np.stack([env.reset(seed=first + i)[0] for i, env in enumerate(self._envs)])

    def step(self, actions: NDArray[np.int64]) -> None:
        """Step all of them."""
        for i, action in enumerate(actions.tolist()):
            self.seen[i], _, terminated, truncated, _ = self._envs[i].step(action)
            if terminated or truncated:
                self.seen[i], _ = self._envs[i].reset()

    def __call__(self) -> int:
        """Step all of them once."""
        self.step(self.policy.act(self.seen, self._numbers))
        return len(self._envs)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()


def _serve_pipe(pipe: Connection, n: int, first: int) -> None:
    loop = BareLoop(n, first)
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(loop.seen.tobytes())
            loop.step(np.frombuffer(pipe.recv_bytes(), np.int64))


class BarePipe:
    """Environments of child processes: bytes of actions there, of observations back."""

    def __init__(self, n: int) -> None:
        shares = np.array_split(np.arange(n), n_workers(n))
        # By fork, what is in this process would be in the children too.
        context = multiprocessing.get_context("spawn")
        self._policy, self._n = Lean(), n
        self._pipes, self._children = [], []
        for share in shares:
            ours, theirs = context.Pipe()
            arguments = (theirs, len(share), int(share[0]))
            child = context.Process(target=_serve_pipe, args=arguments, daemon=True)
            child.start()
            theirs.close()
            self._pipes.append(ours)
            self._children.append(child)
        self()

    def __call__(self) -> int:
        """Step all environments once."""
        for pipe in self._pipes:
            seen = np.frombuffer(pipe.recv_bytes(), np.float32).reshape(-1, 4)
            pipe.send_bytes(self._policy.act(seen, range(len(seen))).tobytes())
        return self._n

    def close(self) -> None:
        """End the children."""
        for pipe in self._pipes:
            pipe.close()
        for child in self._children:
            child.join(WAIT_S)


@contextlib.contextmanager
def bare_server() -> Iterator[tuple[str, str]]:
    """Serve an echo of JSON that checks nothing; yield its URL and a token for it."""
    token = secrets.token_urlsafe()
    with server([*module(sys.executable, "echo_server"), "bare", token]) as (url, _):
        yield url, token


class BareHttp:
    """Environments of this process; the observations of all are echoed by a server, in one request.

    one_by_one: or each in a request of its own.
    """

    def __init__(self, n: int, url: str, *, one_by_one: bool = False) -> None:
        self._loop, self._requests = BareLoop(n), n if one_by_one else 1
        rows = [
            {"observation": seen.tolist(), "step": 0, "env_index": 0} for seen in self._loop.seen
        ]
        body = json_bytes({"action": "act", "observations": rows[:1] if one_by_one else rows})
        self._client = RawClient(url, [body])

    def __call__(self) -> int:
        """Step all environments once."""
        for _ in range(self._requests):
            self._client.once()
        return self._loop()

    def close(self) -> None:
        """Close the connection."""
        self._client.__exit__(None, None, None)
        self._loop.close()


class BareLines:
    """Child processes with an environment each, which answer a line of JSON by one."""

    def __init__(self, n: int) -> None:
        self._echoes = [Echo(CARTPOLE) for _ in range(n)]

    def __call__(self) -> int:
        """Let each take a step."""
        for echo in self._echoes:
            echo.send()
        for echo in self._echoes:
            echo.receive()
        return len(self._echoes)

    def close(self) -> None:
        """End them."""
        for echo in self._echoes:
            echo.close()


class BareBroker:
    """Environments of this process; for each hop of a step a record goes to a Kafka broker and back."""

    def __init__(self, n: int, address: str) -> None:
        import confluent_kafka

        self._loop, self._topic = BareLoop(n), f"bare-{secrets.token_hex(8)}"
        common = {"bootstrap.servers": address, "log_level": 0}
        self._producer = confluent_kafka.Producer({**common, "linger.ms": 0})
        own = {"group.id": self._topic, "enable.auto.commit": False, "fetch.wait.max.ms": 1}
        self._consumer = confluent_kafka.Consumer({**common, **own})
        self._record = b"x" * 60 * n
        self._producer.produce(self._topic, self._record, partition=0)  # makes the topic
        self._producer.flush(WAIT_S)
        self._consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])
        self._receive()

    def __call__(self) -> int:
        """Step all environments once."""
        for _ in range(HOPS):
            self._producer.produce(self._topic, self._record, partition=0)
            self._producer.flush(WAIT_S)
            self._receive()
        return self._loop()

    def _receive(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            message = self._consumer.poll(WAIT_S)
            if message is not None and message.error() is None:
                return
            assert time.monotonic() < deadline, message and message.error()

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()
        self._loop.close()


class _Player:
    """Environments in an actor of Ray."""

    def __init__(self, n: int) -> None:
        self._loop, self._n = BareLoop(n), n

    def play(self) -> Any:
        """Return what a batch of steps showed."""
        seen = np.empty((T + 1, self._n, 4), np.float32)
        actions = np.empty((T, self._n), np.int64)
        for t in range(T):
            seen[t] = self._loop.seen
            actions[t] = self._loop.policy.act(seen[t], range(self._n))
            self._loop.step(actions[t])
        seen[T] = self._loop.seen
        return seen, actions


class BareActor:
    """An actor of Ray that returns arrays, and is asked for the next ones before it has answered."""

    def __init__(self, n: int) -> None:
        import ray

        self._n, self._ray = n, ray
        player: Any = ray.remote(num_cpus=0.1)(_Player)
        self._actor = player.remote(n)
        self._next = self._actor.play.remote()
        self()

    def __call__(self) -> int:
        """Have a batch."""
        asked, self._next = self._next, self._actor.play.remote()
        self._ray.get(asked, timeout=WAIT_S)
        return T * self._n

    def close(self) -> None:
        """End the actor."""
        self._ray.kill(self._actor)
