"""When the operators of an experiment may go on: each at its own speed, or all in step.

    a thread per operator     begin_episode, before_step, end_episode, leave: under one lock
    the main thread           stop
    LockStep: the last thread to arrive at a step, or at the beginning of an episode, lets all of them go on

`stop` wakes all that wait. They also look by themselves now and then, as a wake-up is lost if a signal's
handler interrupts it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

_LOOK_S = 1.0


class StoppedError(Exception):
    """The experiment is being stopped; it ends an operator's thread, and is not shown to users."""


class EpisodeAbandonedError(Exception):
    """Another episode is wished for in place of this one; it ends the episode, and is not shown to users."""


class EpisodeGate(ABC):
    """What each operator passes before an episode and before a step; all may raise StoppedError.

    `before_step` may raise EpisodeAbandonedError.
    """

    @abstractmethod
    def begin_episode(self, name: str) -> None:
        """Wait until the operator may begin its next episode."""

    @abstractmethod
    def before_step(self, name: str) -> None:
        """Wait until it may take its next step."""

    @abstractmethod
    def end_episode(self, name: str) -> None:
        """Note that its episode has ended, or failed."""

    @abstractmethod
    def leave(self, name: str) -> None:
        """Note that it takes no further episodes. Idempotent."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Wait for so long, less if stopped."""

    @abstractmethod
    def stop(self) -> None:
        """Let all calls, those that wait included, raise StoppedError."""


class FreeGate(EpisodeGate):
    """Let each operator go on at once, or after a pause.

    Args:
        pace_s: seconds from one step of an operator to its next, at least.
    """

    def __init__(self, pace_s: float = 0.0) -> None:
        self._pace_s = pace_s
        self._stopped = threading.Event()
        self._next: dict[str, float] = {}

    def begin_episode(self, name: str) -> None:
        """Go on at once."""
        self.pause(0.0)

    def before_step(self, name: str) -> None:
        """Wait for the operator's own pace."""
        if not self._pace_s:
            if self._stopped.is_set():
                raise StoppedError
            return
        self.pause(self._next.get(name, 0.0) - time.monotonic())
        self._next[name] = time.monotonic() + self._pace_s

    def end_episode(self, name: str) -> None:
        """Do nothing: others are not held up."""

    def leave(self, name: str) -> None:
        """Do nothing."""

    def pause(self, seconds: float) -> None:
        """Wait for so long, less if stopped."""
        if self._stopped.wait(max(0.0, seconds)):
            raise StoppedError

    def stop(self) -> None:
        """Let all calls raise StoppedError."""
        self._stopped.set()


class LockStepGate(EpisodeGate):
    """Let all operators begin their episodes, and take their steps, together.

    An operator whose episode has ended waits for the others' ends; one that left is not waited for.

    Args:
        names: of all operators.
        pace_s: seconds from one step of all to the next, at least.
    """

    def __init__(self, names: Iterable[str], pace_s: float = 0.0) -> None:
        self._members = set(names)
        self._stepping: set[str] = set()
        self._arrived: set[str] = set()
        self._condition = threading.Condition()
        self._episodes = self._steps = 0  # how often all were let go on
        self._pace_s, self._next_s = pace_s, 0.0
        self._stopped = False

    def begin_episode(self, name: str) -> None:
        """Wait until no operator is within an episode and all that remain are here."""
        with self._condition:
            round_ = self._episodes
            self._arrived.add(name)
            self._let_go()
            self._wait(lambda: self._episodes > round_)

    def before_step(self, name: str) -> None:
        """Wait until all operators that are within an episode are here."""
        with self._condition:
            round_ = self._steps
            self._arrived.add(name)
            self._let_go()
            self._wait(lambda: self._steps > round_)
            # The moment of the next step was noted by whichever came last.
            rest = self._next_s - self._pace_s
        self.pause(rest - time.monotonic())

    def is_within(self, name: str) -> bool:
        """Return whether an operator has been let begin an episode, and has not ended it."""
        with self._condition:
            return name in self._stepping

    def end_episode(self, name: str) -> None:
        """Let the others take their steps without this operator."""
        with self._condition:
            self._stepping.discard(name)
            self._let_go()

    def leave(self, name: str) -> None:
        """Let the others go on without this operator."""
        with self._condition:
            self._members.discard(name)
            self._stepping.discard(name)
            self._arrived.discard(name)
            self._let_go()

    def pause(self, seconds: float) -> None:
        """Wait for so long, less if stopped."""
        end = time.monotonic() + seconds
        with self._condition:
            self._wait(lambda: time.monotonic() >= end, end)

    def stop(self) -> None:
        """Let all calls, those that wait included, raise StoppedError."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def _let_go(self) -> None:
        """Let those that wait go on if all are here that they wait for."""
        if self._stepping:
            if self._stepping <= self._arrived:
                self._steps += 1
                self._next_s = max(self._next_s, time.monotonic()) + self._pace_s
                # Those that wait for the next episode stay.
                self._arrived -= self._stepping
                self._condition.notify_all()
        elif self._members and self._members <= self._arrived:
            self._episodes += 1
            # At once: the first to go on would otherwise step alone.
            self._stepping = set(self._members)
            self._arrived.clear()
            self._condition.notify_all()

    def _wait(self, done: Callable[[], bool], end: float | None = None) -> None:
        while not done():
            if self._stopped:
                raise StoppedError
            left = _LOOK_S if end is None else min(_LOOK_S, end - time.monotonic())
            self._condition.wait(max(0.0, left))
        if self._stopped:
            raise StoppedError
