"""The actor of a learner other than the first.

    first learner: RayLearners      this actor
    ask, answers   <--- Ray --->    LearnerActor.answer, one request at a time  --->  LearnerProcess
    add, gather    <--- TCP --->    GlooExchange  <---------------------------------  add, gather

Requests and answers are pickled here, not by Ray, whose arrays could not be written to.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

import cloudpickle

from parllel.cages.env_registry import adopt_registry
from parllel.distributed.rollouts.on_ray.packed_build import unpack_build
from parllel.distributed.rollouts.on_ray.raylet_watch import end_with_raylet
from parllel.distributed.rollouts.on_ray.start_actor import node_address
from parllel.system.processes.exceptions import pack_exception
from parllel.torch.gloo_exchange import GlooExchange
from parllel.torch.learner_process import LearnerProcess, Place

ANSWER, ERROR = b"A", b"E"  # the first byte of a reply


class LearnerActor:
    """Builds a run, and does what the first learner asks for.

    Args:
        n: number of learners.
        place: what distinguishes this learner. If its folder exists here, it is used; otherwise this machine
            is another one, and a temporary folder is.
        registry: the environments that are registered in the first learner.
        build: the build function and its config, packed.
        first: where the first learner listens.
    """

    def __init__(
        self, n: int, place: Place, registry: bytes, build: bytes, first: tuple[str, int]
    ) -> None:
        end_with_raylet()
        self._n, self._place, self._first = n, place, first
        self._registry, self._build = registry, build
        self._own_folder: str | None = None
        self._exchange: GlooExchange | None = None
        self._learner: LearnerProcess | None = None

    def where(self) -> str:
        """Return the process and its node, for messages."""
        return f"process {os.getpid()} on {node_address()}"

    def answer(self, request: bytes) -> bytes:
        """Answer a request, with what is returned or raised."""
        try:
            op, args = cloudpickle.loads(request)
            value: bytes = cloudpickle.dumps(self._answered(op, *args))
            return ANSWER + value
        # Of any kind: the first learner raises it, and then ends this one.
        except BaseException as error:
            # So that no other learner waits for this one.
            if self._exchange is not None:
                self._exchange.close()
            return ERROR + pack_exception(error)

    def _answered(self, op: str, *args: Any) -> Any:
        if op == "close":
            return self._close()
        if op == "build":
            # Not in the constructor, so that errors of its imports are raised as those of the build function.
            self._learner = self._unpacked()
        assert self._learner is not None
        return self._learner.answer(op, *args)

    def _unpacked(self) -> LearnerProcess:
        adopt_registry(self._registry)
        build, config = unpack_build(self._build)
        if not os.path.isdir(self._place.folder):
            self._own_folder = tempfile.mkdtemp(prefix="parllel-learners-")
            self._place = self._place._replace(folder=self._own_folder)
        self._exchange = GlooExchange(self._n, node_address(), self._first)
        return LearnerProcess(self._place, build, config, self._exchange)

    def _close(self) -> None:
        try:
            if self._learner is not None:
                self._learner.close()
        finally:
            if self._own_folder is not None:
                shutil.rmtree(self._own_folder, ignore_errors=True)
