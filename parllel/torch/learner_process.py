"""The process of a learner other than the first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from parllel.algos.learner_group import Exchange
from parllel.buffers.child_conversation import ChildConversation


class Place(NamedTuple):
    """What distinguishes the process of a learner from the first one.

    Attributes:
        rank: number of the learner.
        folder: where the folder that its build function receives is made.
        threads: number of PyTorch's threads in each learner.
    """

    rank: int
    folder: str
    threads: int


# Set in the process of another learner before it builds its run; None in the first.
_place: Place | None = None


def own_rank() -> int:
    """Return the number of the learner in this process."""
    return 0 if _place is None else _place.rank


class LearnerProcess:
    """Builds a run, and does what the first learner asks for.

    Args:
        place: what distinguishes this process from the first learner's.
        build, config: the build function and its config.
        exchange: shared with the other learners.
    """

    def __init__(
        self, place: Place, build: Callable[..., Any], config: Any, exchange: Exchange
    ) -> None:
        self._place, self._build, self._config = place, build, config
        self._exchange = exchange
        self._stack = ExitStack()
        self._learners: Any = None

    def answer(self, op: str, *args: Any) -> Any:
        """Do what the first learner asks for, and return the answer.

        After any error the learners no longer have equal weights, so the process must end.
        """
        if op == "build":
            return self._make()
        if op == "join":
            return self._learners.join(self._exchange, self._place.threads)
        return self._learner.answer(op, *args)

    def close(self) -> None:
        """Close what the build function has left to its stack. Idempotent."""
        self._stack.close()

    def _make(self) -> Any:
        # Not above: `parllel.torch` is imported without runners.
        from parllel.runners.shared_learning import OtherLearner, SharedCycle
        from parllel.runs.run_folder import RunFolder

        global _place
        _place = self._place
        folder = RunFolder(self._place.folder, f"learner-{self._place.rank}")
        runner = self._build(self._config, self._stack, folder, None)
        cycle = getattr(runner, "cycle", None)
        if not isinstance(cycle, SharedCycle):
            raise TypeError(
                f"Learners: expected the build function to pass learners=... to its runner, got a "
                f"{type(runner).__name__} without"
            )
        self._learners = runner.learners
        self._learner = OtherLearner(cycle)
        return cycle.part()


def serve(
    connection: Connection,
    place: Place,
    build: Callable[..., Any],
    config: Any,
    inherited: Exchange,
) -> None:
    """Answer requests until "close", or until the first learner ends; the target of a child process.

    inherited: shared with the other learners.
    """
    conversation = ChildConversation(connection)
    learner = LearnerProcess(place, build, config, inherited)
    with contextlib.suppress(Exception), contextlib.closing(learner):
        try:
            while (request := conversation.next_request()) is not None:
                number, op, args = conversation.read_call(request)
                if op == "close":
                    conversation.send(conversation.reply_to(number, (Exception,), learner.close))
                    return
                conversation.send(conversation.reply_to(number, (), learner.answer, op, *args))
        # Reported before anything is closed, as closing may also fail or hang.
        except BaseException as error:
            conversation.fail(error)
