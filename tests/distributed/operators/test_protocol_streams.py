from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.distributed.operators import MessageError
from parllel.distributed.operators.protocol.protocol_streams import ProtocolStreams

LONGEST = 12
LINES = st.lists(st.binary(max_size=2 * LONGEST).map(lambda line: line.replace(b"\n", b"")))


def read_all(chunks, longest=LONGEST):
    """Return what is read of chunks, which a thread writes one by one; an error for a long line."""
    inner, outer = os.pipe()
    streams = ProtocolStreams(inner, -1, max_line_bytes=longest)

    def write():
        for chunk in chunks:
            os.write(outer, chunk)
        os.close(outer)

    thread = threading.Thread(target=write)
    thread.start()
    found = []
    try:
        while True:
            try:
                line = streams.read_line()
            except MessageError as error:
                line = str(error)
            if line is None:
                # The end stays the end.
                assert streams.read_line() is None
                return found
            found.append(line)
    finally:
        thread.join()
        os.close(inner)


@given(LINES, st.binary(max_size=5).map(lambda rest: rest.replace(b"\n", b"")), st.data())
def test_lines_are_the_same_in_whatever_chunks_they_come(lines, rest, data):
    text = b"".join(line + b"\n" for line in lines) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    chunks = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    expected = [
        line if len(line) <= LONGEST else "expected a line of at most 12 bytes, got a longer one"
        for line in [*lines, *([rest] if rest else [])]
    ]
    assert read_all([chunk for chunk in chunks if chunk]) == expected


def test_a_line_of_the_limit_that_comes_alone_is_read():
    inner, outer = os.pipe()
    streams = ProtocolStreams(inner, -1, max_line_bytes=LONGEST)
    try:
        os.write(outer, b"a" * LONGEST + b"\n")
        assert streams.read_line() == b"a" * LONGEST
        os.write(outer, b"a" * (LONGEST + 1) + b"\n")
        with pytest.raises(MessageError, match="at most 12 bytes"):
            streams.read_line()
    finally:
        os.close(outer)
        os.close(inner)


def test_a_line_above_the_limit_is_left_out_and_the_next_one_read():
    chunks = [b"a" * 200_000, b"b" * 200_000 + b"\nnext\n", b"c" * 300_001]
    first, second, last = read_all(chunks, longest=300_000)
    assert first == last == "expected a line of at most 300000 bytes, got a longer one"
    assert second == b"next"


def test_what_nobody_reads_raises():
    inner, outer = os.pipe()
    os.close(inner)
    with pytest.raises(BrokenPipeError, match="Broken pipe"):
        ProtocolStreams(-1, outer).write(b"x\n")
    os.close(outer)
