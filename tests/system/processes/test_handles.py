"""Connections are waited for together, for whoever owns them."""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack

from starting import LONG_S

from parllel.system.processes.several import WaitSet


def test_handles_are_returned_with_their_owners() -> None:
    handles = WaitSet()
    with ExitStack() as stack:
        (first, to_first), (second, to_second) = pipes = [
            multiprocessing.Pipe(duplex=False) for _ in range(2)
        ]
        for end in (end for pipe in pipes for end in pipe):
            stack.enter_context(end)
        number = handles.add(first, "a")
        assert handles.add(first, "b") == number
        handles.add(second, "c")
        assert handles.ready(0.0) == []
        to_first.send_bytes(b"x")
        assert handles.ready(LONG_S) == [(first, ["a", "b"])]
        handles.remove(number, "a")
        assert handles.ready(LONG_S) == [(first, ["b"])]
        # It stays ready, which must neither be returned nor keep others from being waited for.
        handles.remove(number, "b")
        assert handles.ready(0.01) == []
        to_second.send_bytes(b"x")
        assert handles.ready(LONG_S) == [(second, ["c"])]
        handles.add(first, "d")
        assert sorted(owners for _, owners in handles.ready(LONG_S)) == [["c"], ["d"]]


def test_a_number_may_go_from_one_handle_to_another() -> None:
    handles = WaitSet()
    reader, writer = multiprocessing.Pipe(duplex=False)
    number = handles.add(reader, "a")
    handles.remove(number, "a")
    reader.close()
    writer.close()
    # The system gives the lowest number that is free.
    other, to_other = multiprocessing.Pipe(duplex=False)
    with other, to_other:
        assert handles.add(other, "b") == number
        assert handles.ready(0.0) == []
        to_other.send_bytes(b"x")
        assert handles.ready(LONG_S) == [(other, ["b"])]
