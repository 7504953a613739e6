"""Gates at which the operators of an experiment wait: each at its own speed, or all in lock-step.

    a thread per operator     begin_episode, before_step, end_episode, leave: under one lock
    the main thread           stop
    LockStepGate: the last thread to arrive at a step, or at the start of an episode, releases all of them

`stop` wakes all waiting threads. They also poll, because a notification is lost if a signal handler
interrupts it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

_LOOK_S = 1.0  # between polls of a waiting thread


class StoppedError(Exception):
    """Raised in an operator's thread when the experiment is being stopped. Not shown to users."""


class EpisodeAbandonedError(Exception):
    """Raised to end an episode when another one was requested in its place. Not shown to users."""


class EpisodeGate(ABC):
    """Gate that each operator passes before its episodes and steps.

    All methods may raise StoppedError. `before_step` may also raise EpisodeAbandonedError.
    """

    @abstractmethod
    def begin_episode(self, name: str) -> None:
        """Wait until the operator may start its next episode."""

    @abstractmethod
    def before_step(self, name: str) -> None:
        """Wait until the operator may take its next step."""

    @abstractmethod
    def end_episode(self, name: str) -> None:
        """Record that the operator's episode has ended or failed."""

    @abstractmethod
    def leave(self, name: str) -> None:
        """Record that the operator plays no further episodes. Idempotent."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until stopped."""

    @abstractmethod
    def stop(self) -> None:
        """Make all calls raise StoppedError, including those that are waiting."""


class FreeGate(EpisodeGate):
    """Gate at which operators continue independently, immediately or after a pause.

    Args:
        pace_s: minimum seconds from one step of an operator to its next.
    """

    def __init__(self, pace_s: float = 0.0) -> None:
        self._pace_s = pace_s
        self._stopped = threading.Event()
        self._next: dict[str, float] = {}

    def begin_episode(self, name: str) -> None:
        """Return at once."""
        self.pause(0.0)

    def before_step(self, name: str) -> None:
        """Wait until the operator's next step is due."""
        if not self._pace_s:
            if self._stopped.is_set():
                raise StoppedError
            return
        self.pause(self._next.get(name, 0.0) - time.monotonic())
        self._next[name] = time.monotonic() + self._pace_s

    def end_episode(self, name: str) -> None:
        """Do nothing, because no other operator waits."""

    def leave(self, name: str) -> None:
        """Do nothing."""

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until stopped."""
        if self._stopped.wait(max(0.0, seconds)):
            raise StoppedError

    def stop(self) -> None:
        """Make all calls raise StoppedError."""
        self._stopped.set()


class LockStepGate(EpisodeGate):
    """Gate at which all operators start their episodes, and take their steps, together.

    An operator whose episode has ended waits for the others to end theirs. The others do not wait
    for operators that have left.

    Args:
        names: names of all operators.
        pace_s: minimum seconds from one step of all operators to the next.
    """

    def __init__(self, names: Iterable[str], pace_s: float = 0.0) -> None:
        self._members = set(names)  # that have not left
        self._stepping: set[str] = set()  # members within an episode
        self._arrived: set[str] = set()  # waiting, for a step or for the next episode
        self._condition = threading.Condition()
        self._episodes = self._steps = 0  # how often all were released
        self._pace_s, self._next_s = pace_s, 0.0
        self._stopped = False

    def begin_episode(self, name: str) -> None:
        """Wait until no operator is in an episode and all remaining ones are here."""
        with self._condition:
            # Counted, not flagged: a slow thread may wake after the others have arrived at the next round.
            round_ = self._episodes
            self._arrived.add(name)
            self._let_go()
            self._wait(lambda: self._episodes > round_)

    def before_step(self, name: str) -> None:
        """Wait until all operators that are in an episode are here."""
        with self._condition:
            round_ = self._steps
            self._arrived.add(name)
            self._let_go()
            self._wait(lambda: self._steps > round_)
            # The last to arrive has set the time of the step after this one.
            rest = self._next_s - self._pace_s
        self.pause(rest - time.monotonic())

    def is_within(self, name: str) -> bool:
        """Return whether an operator was released into an episode that it has not ended."""
        with self._condition:
            return name in self._stepping

    def end_episode(self, name: str) -> None:
        """Let the other operators step without this one."""
        with self._condition:
            self._stepping.discard(name)
            self._let_go()

    def leave(self, name: str) -> None:
        """Let the other operators continue without this one permanently."""
        with self._condition:
            self._members.discard(name)
            self._stepping.discard(name)
            self._arrived.discard(name)
            self._let_go()

    def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until stopped."""
        end = time.monotonic() + seconds
        with self._condition:
            self._wait(lambda: time.monotonic() >= end, end)

    def stop(self) -> None:
        """Make all calls raise StoppedError, including those that are waiting."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def _let_go(self) -> None:
        """Release the waiting operators if all that they wait for are here."""
        if self._stepping:
            if self._stepping <= self._arrived:
                self._steps += 1
                self._next_s = max(self._next_s, time.monotonic()) + self._pace_s
                # Operators that wait for the next episode stay where they are.
                self._arrived -= self._stepping
                self._condition.notify_all()
        elif self._members and self._members <= self._arrived:
            self._episodes += 1
            # All at once: otherwise the first thread to wake would find no other stepping, and step alone.
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
