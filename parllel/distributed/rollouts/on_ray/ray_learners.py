"""Several learners on a Ray cluster.

    first learner: RayLearners, in the trainer       another learner: learner_actor.py
    launch       -- build(config) --------------->  an actor, on any node with room for it
    ask, answers <------- Ray ------------------->  LearnerActor.answer
    add, gather  <------- GlooExchange, TCP ----->  add, gather
                 -- job ends -------------------->  killed by Ray

The rest is in parllel/torch/started_learners.py. Ray reports the death of an actor, which may take it some
seconds; the broken connection of the exchange shows it at once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import ray

from parllel.cages.env_registry import pack_registry
from parllel.distributed.rollouts.on_ray.answers import LATE_S, answer
from parllel.distributed.rollouts.on_ray.learner_actor import ERROR, LearnerActor
from parllel.distributed.rollouts.on_ray.packed_build import pack_build
from parllel.distributed.rollouts.on_ray.ray_connection import RayConnection
from parllel.distributed.rollouts.on_ray.start_actor import node_address, start_actor
from parllel.distributed.rollouts.on_ray.worker_options import WorkerOptions, described
from parllel.distributed.rollouts.on_ray.worker_places import (
    Purpose,
    WorkerPlaces,
    check_room,
    free_resources,
)
from parllel.errors import WorkerDiedError, WorkerError, WorkerTimeoutError
from parllel.system.processes.exceptions import raise_packed
from parllel.torch.gloo_exchange import GlooExchange, check_gloo
from parllel.torch.learner_process import Place
from parllel.torch.started_learners import StartedLearners

_PURPOSE = Purpose("RayLearners", "n", "actors", n_here=1)
# An actor that takes longer to close is killed, after a failure sooner.
_CLOSE_S, _LEAVE_S = 4.0, 2.0


class RayLearners(StartedLearners):
    """Learners on the nodes of a Ray cluster; otherwise like `parllel.torch.Learners`. See docs/learners.md.

    This process is the first learner; the others are actors. Gradients are added up over TCP, between nodes
    that can reach each other. This process must be connected to Ray, for example by a `RaySession`.

    Args:
        n: number of learners, this process included.
        build: the build function that makes this object. It is pickled by cloudpickle.
        config: its config.
        options: resources and placement of each actor. A learner is never restarted, so `restarts` and
            `within_s` have no effect. Each learner computes with at most `cpus` threads of PyTorch, but
            at least one.
        timeout_s: time limit for building, for a batch, and for each exchange. Learners that die are noticed
            at once.

    Attributes:
        n: number of learners.
        rank: number of this learner; 0 is the first.

    Raises:
        ValueError: if `n` is less than 1, `timeout_s` is not positive, or the cluster lacks the resources.
        TypeError: if `n` is not an int.
        ConnectionError: if this process is not connected to Ray.
        ImportError: if PyTorch has no gloo.
    """

    # Ray may take this long to notice that a node has gone.
    last_words_s = LATE_S

    def __init__(
        self,
        n: int,
        build: Callable[..., Any],
        config: Any,
        *,
        options: WorkerOptions | None = None,
        timeout_s: float = 300.0,
    ) -> None:
        super().__init__(n, build, config, timeout_s=timeout_s)
        self._options = options or WorkerOptions()
        self._places: WorkerPlaces | None = None
        self._tie: RayConnection | None = None
        # The others were placed when they check this.
        if n > 1 and not self.rank:
            check_gloo("RayLearners")
            # Otherwise the first call of Ray would start another one.
            if not ray.is_initialized():
                raise ConnectionError(
                    "RayLearners: expected this process to be connected to Ray, but it is not; enter a "
                    "RaySession before the run is built"
                )
            self._tie = RayConnection()
            check_room(n - 1, self._options, _PURPOSE)

    def cores(self) -> int:
        """Return how many Ray reserves for each of the others."""
        # For the first learner too: in other numbers of threads, sums are rounded differently.
        return int(self._options.cpus)

    def make_exchange(self) -> GlooExchange:
        """Listen on this node."""
        return GlooExchange(self.n, node_address())

    def launch(self, exchange: GlooExchange, folder: Path, threads: int) -> None:
        """Start the actors."""
        assert self._tie is not None
        self._tie.check("RayLearners: start")
        options = self._options
        # Before the actors: one that finds it is on this machine, or shares this disk.
        folder.mkdir(parents=True, exist_ok=True)
        self._places = WorkerPlaces(self.n - 1, options, _PURPOSE)
        shared = pack_registry(), pack_build((self.build, self.config)), exchange.address
        actors = [
            start_actor(
                LearnerActor,
                self.n,
                Place(rank, str(folder.absolute()), threads),
                *shared,
                num_cpus=options.cpus,
                num_gpus=options.gpus,
                resources=dict(options.resources),
                scheduling_strategy=self._places.strategy,
            )
            for rank in range(1, self.n)
        ]
        others = [
            _ActorLearner(actor, f"learner {rank}", self.timeout_s, self._tie)
            for rank, actor in enumerate(actors, start=1)
        ]
        self.others += others
        deadline = time.monotonic() + options.start_timeout_s
        for other in others:
            try:
                other.locate(max(deadline - time.monotonic(), 0.0))
            except WorkerTimeoutError:
                raise WorkerTimeoutError(
                    f"RayLearners: {other.name}: no node had {described(options.reserved)} for it within "
                    f"{options.start_timeout_s:g} s; {free_resources(options)}"
                ) from None

    def _end(self) -> None:
        super()._end()
        if self._places is not None and self._tie is not None and self._tie.holds:
            self._places.remove()


class _ActorLearner:
    """The first learner's end of its conversation with one in an actor."""

    def __init__(self, actor: Any, name: str, timeout_s: float, tie: RayConnection) -> None:
        self._actor, self.name, self._timeout_s, self._tie = actor, name, timeout_s, tie
        self._op = ""
        self._asked: Any = None  # reference to the reply
        self._value: Any = None  # of the last reply
        self._error: BaseException | None = None
        self._gone = False

    def locate(self, timeout_s: float) -> None:
        """Wait for the start of the actor, and add its place to the name."""
        try:
            where = answer(self._actor.where.remote(), self.name, "start", timeout_s)
        except Exception as error:
            self._error = error
            raise
        self.name = f"{self.name}: {where}"

    def ask(self, op: str, *args: Any) -> None:
        self._tie.check(f"{self.name}: {op}")
        self._op = op
        self._asked = self._request(op, *args)

    def answer(self) -> Any:
        self._receive()
        if self._error is not None:
            raise self._error
        value, self._value = self._value, None
        return value

    def lost(self) -> bool:
        # A reply that is there is taken: it may be an error.
        if not self._tie.holds or (self._asked and ray.wait([self._asked], timeout=0)[0]):
            self._receive()
        return self._error is not None

    def failure(self) -> BaseException:
        assert self._error is not None
        return self._error

    def begin_close(self) -> None:
        if self._error is None and not self._gone and self._tie.holds:
            self._op, self._asked = "close", self._request("close")

    def close(self) -> None:
        if self._op == "close" and not self._gone:
            self._timeout_s = _CLOSE_S
            self._receive()
        error = self._error
        self.kill()
        # As from a process: that it died or hangs is no error of closing.
        if self._op == "close" and error is not None and not isinstance(error, WorkerError):
            raise error

    def kill(self) -> None:
        if self._gone:
            return
        self._gone = True
        if not self._tie.holds:
            return
        # One that raised, or waited for another one, still closes its environments.
        if self._op != "close" and not isinstance(
            self._error, (WorkerDiedError, WorkerTimeoutError)
        ):
            with contextlib.suppress(Exception):
                ray.get(self._request("close"), timeout=_LEAVE_S)
        ray.kill(self._actor)

    def _request(self, op: str, *args: Any) -> Any:
        return self._actor.answer.remote(cloudpickle.dumps((op, args)))

    def _receive(self) -> None:
        """Take the reply to the last request, unless it has been taken."""
        asked, self._asked = self._asked, None
        try:
            self._tie.check(f"{self.name}: {self._op}")
            if asked is None:
                return
            reply = answer(asked, self.name, self._op, self._timeout_s)
            if reply[:1] == ERROR:
                raise_packed(reply[1:], f"{self.name}, during {self._op}")
            self._value = cloudpickle.loads(reply[1:])
        except Exception as error:
            self._error = error
