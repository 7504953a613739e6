"""How long is a round trip to another process, compared with a multiprocessing pipe?

Ours post a word in shared memory and wait for another; the pipe carries a tuple of two small numbers. The
other process does nothing but answer. Each kind of wait is asked with spinning and without.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.system.processes.child import Child
from parllel.system.waits import Wait, available_kinds, make_wait
from parllel.system.waits.sleep_slots import SleepSlots
from parllel.system.waits.wait import LINE_WORDS

N_LINES, LEAVE, TIMEOUT_S = 2, -1, 30.0
LINES_BYTES = N_LINES * LINE_WORDS * 4
Trip: TypeAlias = Callable[[int], int]


def map_lines(path: str) -> NDArray[np.int32]:
    """Return the lines in a file, as every process that opens it sees them."""
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), LINES_BYTES)
    return np.frombuffer(mapped, np.int32).reshape(N_LINES, LINE_WORDS)


def answer_words(
    connection: Connection, path: str, kind: str, spin_us: float, *, inherited: SleepSlots
) -> None:
    """Post on line 1 what comes on line 0, until that says to leave."""
    wait = make_wait(map_lines(path), kind, spin_us=spin_us, sleep_slots=inherited)
    connection.send_bytes(b"ready")
    seen = 0
    while seen != LEAVE:
        value = wait.wait(0, seen, TIMEOUT_S)
        if value != seen:
            wait.post(1, value)
            seen = value


def answer_tuples(connection: Connection) -> None:
    """Send back what comes, until that says to leave."""
    message = (0, 0)
    while message[1] != LEAVE:
        message = connection.recv()
        connection.send(message)


def by_word(wait: Wait) -> Trip:
    """Return a function that sends a number there and back through two words."""
    seen = 0

    def trip(value: int) -> int:
        nonlocal seen
        wait.post(0, value)
        seen = wait.wait(1, seen, TIMEOUT_S)
        return seen

    return trip


def by_pipe(connection: Connection) -> Trip:
    """Return a function that sends a number there and back through a pipe."""

    def trip(value: int) -> int:
        connection.send((1, value))
        answer: tuple[int, int] = connection.recv()
        return answer[1]

    return trip


def counting(trip: Trip) -> Callable[[], int]:
    """Return work that makes one round trip, each with a number of its own."""
    value = 1000

    def work() -> int:
        nonlocal value
        value += 1
        if trip(value) != value:
            raise RuntimeError(f"round trip: expected {value} back")
        return 1

    return work


def round_trips(kind: str, spin_us: float) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up a wait and a pipe, each with a process at the other end."""

    @contextmanager
    def make() -> Iterator[Sides]:
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(LINES_BYTES))
            file.flush()
            sleep_slots = SleepSlots(N_LINES, n_waiters=2)
            wait = make_wait(map_lines(file.name), kind, spin_us=spin_us, sleep_slots=sleep_slots)
            arguments = (file.name, kind, spin_us)
            at_words = Child(answer_words, arguments, inherited=sleep_slots, name="at the words")
            at_pipe = Child(answer_tuples, name="at the pipe")
            try:
                at_words.receive(TIMEOUT_S, "at start")
                word, pipe = by_word(wait), by_pipe(at_pipe.connection)

                def check() -> None:
                    for value in range(1, 1000):
                        assert word(value) == pipe(value) == value

                yield Sides(counting(word), counting(pipe), check, note=f"spins {spin_us:g} us")
                word(LEAVE)
                pipe(LEAVE)
            finally:
                at_words.end()
                at_pipe.end()

    return make


COMPARISONS = [
    Comparison(
        f"wait/{kind}{'' if spin_us else '-sleeping'}",
        f"round trip to a process, {kind} wait{'' if spin_us else ' without spin'}, against a pipe",
        round_trips(kind, spin_us),
    )
    for kind in available_kinds()
    for spin_us in (50.0, 0.0)
]

test_wait = timed_sides(COMPARISONS)
