"""The messages of a channel, where waits for them end early or are long."""

from __future__ import annotations

import signal
import struct
import sys
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest

from parllel.system.processes.pipe_end import PipeEnd

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="messages come whole there")

MESSAGE = bytes(range(256)) * 4
FRAME = struct.pack("!i", len(MESSAGE)) + MESSAGE
LONG_FRAME = struct.pack("!iQ", -1, len(MESSAGE)) + MESSAGE


@pytest.fixture
def ends() -> Iterator[tuple[PipeEnd, Connection]]:
    mine, theirs = Pipe()
    yield PipeEnd(mine), theirs
    mine.close()
    theirs.close()


def write(connection: Connection, content: bytes) -> None:
    """Write without a length in front of it."""
    connection._send(content)  # type: ignore[attr-defined]


class InterruptError(Exception):
    """Stands for Ctrl-C."""


@pytest.fixture
def interrupt_soon() -> Iterator[Any]:
    def raise_error(number: int, frame: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise InterruptError

    before = signal.signal(signal.SIGALRM, raise_error)
    # Again and again: a signal that comes just before a read begins to wait is seen after it.
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("timeout_s", [None, 30.0])
@pytest.mark.parametrize("frame", [FRAME, LONG_FRAME], ids=["short length", "long length"])
@pytest.mark.parametrize("cut", [0, 3, 4, 7, 11, 12, 15, 16, 17, 500])
def test_a_message_whose_reading_was_interrupted_is_read_whole_the_next_time(
    ends: tuple[PipeEnd, Connection],
    interrupt_soon: Any,
    cut: int,
    frame: bytes,
    timeout_s: float | None,
) -> None:
    channel, far = ends
    write(far, frame[:cut])
    with pytest.raises(InterruptError, match=r"^$"):  # noqa: PT012
        interrupt_soon()  # on a busy machine before the read begins
        channel.read(timeout_s)
    write(far, frame[cut:])
    far.send_bytes(b"next")
    assert channel.read(timeout_s) == MESSAGE
    assert channel.read(timeout_s) == b"next"
    assert not channel.poll()


@pytest.mark.parametrize("cut", [0, 3, 4, 15, 500])
def test_a_message_that_came_late_is_read_whole_the_next_time(
    ends: tuple[PipeEnd, Connection], cut: int
) -> None:
    channel, far = ends
    for _ in range(2):
        write(far, FRAME[:cut])
        for _ in range(2):
            with pytest.raises(TimeoutError, match=r"^$"):
                channel.read(0.01)
        write(far, FRAME[cut:])
        assert channel.read(0.01) == MESSAGE


@pytest.mark.parametrize("cut", [3, 12, 500, len(FRAME)])
def test_what_a_look_has_seen_says_nothing_of_what_follows(
    ends: tuple[PipeEnd, Connection], cut: int
) -> None:
    channel, far = ends
    write(far, FRAME[:cut])
    assert channel.poll()
    if cut == len(FRAME):
        assert channel.read(0.0) == MESSAGE
    # The first part is read without another look; all else is waited for, and not for ever.
    with pytest.raises(TimeoutError, match=r"^$"):
        channel.read(0.05)


def test_an_end_in_the_middle_of_a_message_stays_the_end(
    ends: tuple[PipeEnd, Connection],
) -> None:
    channel, far = ends
    write(far, FRAME[:100])
    far.close()
    for _ in range(2):
        with pytest.raises(EOFError, match=r"^$"):
            channel.read(30.0)


@pytest.mark.parametrize("timeout_s", [1e7, 1e12, float("inf")])
def test_time_outs_may_be_as_long_as_anybody_likes(
    ends: tuple[PipeEnd, Connection], timeout_s: float
) -> None:
    channel, far = ends
    content = bytes(1 << 20)  # more than a pipe takes at once
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(far.recv_bytes()))
    reader.start()
    try:
        channel.write(content, timeout_s)
    finally:
        far.send_bytes(b"answer")
        reader.join(30)
    assert found == [content]
    assert channel.read(timeout_s) == b"answer"
