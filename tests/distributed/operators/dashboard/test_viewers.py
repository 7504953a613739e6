"""WebSocket: states are coalesced, and of frames the newest wins."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from websockets.exceptions import ConnectionClosed

from parllel.distributed.operators.dashboard.viewers import Viewers


def received(socket, timeout_s=20):
    """Return the next message: a state as a dict, or `(header, png)`."""
    message = socket.recv(timeout=timeout_s)
    if isinstance(message, str):
        return json.loads(message)
    length = int.from_bytes(message[:4], "big")
    return json.loads(message[4 : 4 + length]), message[4 + length :]


def next_frame(socket):
    while isinstance(message := received(socket), dict):
        pass
    return message


def state_where(socket, true_of):
    while True:
        message = received(socket)
        if isinstance(message, dict) and true_of(message):
            return message


def look(socket, *cards):
    socket.send(json.dumps({"type": "look", "cards": cards}))


def seen(socket, card, number):
    socket.send(json.dumps({"type": "seen", "card": card, "number": number}))


def wait_until(true):
    limit = time.monotonic() + 20
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_the_state_comes_at_once_and_after_changes(opened, board):
    served = opened(board)
    first, second = served.socket(), served.socket()
    for socket in (first, second):
        assert received(socket) == {"type": "state", **board.snapshot()}
    board.add_card("a")
    for socket in (first, second):
        state = state_where(socket, lambda one: one["cards"])
        assert [card["id"] for card in state["cards"]] == ["a"]


def test_many_changes_are_few_states(opened, board):
    served = opened(board)
    socket = served.socket()
    received(socket)
    before, begun = board.snapshots, time.monotonic()
    for _ in range(5000):
        board.change()
    state_where(socket, lambda one: one["version"] == 5000)
    # At most 20 a second, however long it took, and the newest always comes.
    assert board.snapshots - before <= 20 * (time.monotonic() - begun) + 3


def test_frames_come_of_the_cards_that_are_looked_at(opened, board):
    served = opened(board)
    for card in ("a", "b"):
        board.add_card(card)
        board.draw(card, 1)
    socket = served.socket()
    look(socket, "a")
    header, png = next_frame(socket)
    assert header == {"card": "a", "number": 1, "episode": 0, "step": 10}
    assert png == (1).to_bytes(4, "big") * 25
    assert list(board.looked.values()) == [frozenset({"a"})]
    look(socket, "a", "b", "gone")
    assert next_frame(socket)[0]["card"] == "b"


def test_a_new_frame_waits_until_the_last_was_seen_and_the_newest_wins(opened, board):
    served = opened(board)
    board.add_card("a")
    board.draw("a", 1)
    socket = served.socket()
    look(socket, "a")
    assert next_frame(socket)[0]["number"] == 1
    for number in range(2, 50):
        board.draw("a", number)
    # Nothing but states, whatever has been drawn.
    state_where(socket, lambda one: one["cards"][0]["frame"] == 49)
    seen(socket, "a", 48)  # another's number says nothing
    board.change()
    received(socket)
    seen(socket, "a", 1)
    assert next_frame(socket)[0]["number"] == 49


def test_one_that_looks_away_gets_the_newest_when_it_comes_back(opened, board):
    served = opened(board)
    board.add_card("a")
    board.draw("a", 1)
    socket = served.socket()
    look(socket, "a")
    assert next_frame(socket)[0]["number"] == 1
    look(socket)
    wait_until(lambda: list(board.looked.values()) == [frozenset()])
    look(socket, "a")
    assert next_frame(socket)[0]["number"] == 1


def test_a_slow_viewer_holds_up_no_other_and_skips(opened, board):
    served = opened(board)
    board.add_card("a")
    slow, quick = served.socket(max_queue=1), served.socket()
    for socket in (slow, quick):
        look(socket, "a")
    board.draw("a", 1, nbytes=500_000)
    for socket in (slow, quick):
        assert next_frame(socket)[0]["number"] == 1
    seen(quick, "a", 1)
    n = 30
    for number in range(2, n + 1):
        board.draw("a", number, nbytes=500_000)
        assert next_frame(quick)[0]["number"] == number
        seen(quick, "a", number)
    # It was sent none of those that came while it had not seen the first.
    seen(slow, "a", 1)
    assert next_frame(slow)[0]["number"] == n


def test_a_viewer_that_reads_nothing_is_sent_little(opened, board):
    served = opened(board)
    slow, quick = served.socket(max_queue=1), served.socket()
    n = 100
    for number in range(n):
        board.change()
        state_where(quick, lambda one, number=number: one["version"] > number)
    # The next states are old ones that were on their way, and then comes the newest.
    versions = [received(slow)["version"]]
    while versions[-1] < n:
        versions.append(received(slow)["version"])
    assert len(versions) < 10


def test_a_card_that_is_removed_is_no_error(opened, board):
    served = opened(board)
    board.add_card("a")
    socket = served.socket()
    look(socket, "a")
    board.draw("a", 1)
    next_frame(socket)
    board.remove_card("a")
    state_where(socket, lambda one: not one["cards"])
    seen(socket, "a", 1)
    board.add_card("a")
    board.draw("a", 1)
    board.draw("a", 2)
    assert next_frame(socket)[0]["number"] == 2


def test_who_has_left_looks_at_nothing(opened, board):
    served = opened(board)
    board.add_card("a")
    socket = served.socket()
    look(socket, "a")
    wait_until(lambda: board.looked)
    assert board.listeners == 1
    socket.close()
    wait_until(lambda: not board.looked and not board.listeners)
    # And the next one is shown all again.
    assert received(served.socket())["cards"]


class LeavingSocket:
    """Looks at a card and leaves; its connection is lost while the tasks that serve it end."""

    def __init__(self):
        self.serving, self.sends = None, asyncio.Event()

    async def send(self, message):
        self.sends.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.serving.cancel()
            raise

    async def __aiter__(self):
        yield json.dumps({"type": "look", "cards": ["a"]})
        await self.sends.wait()


def test_who_is_cut_off_while_leaving_looks_at_nothing(board):
    async def serve():
        socket = LeavingSocket()
        socket.serving = asyncio.ensure_future(Viewers(board).serve(socket))
        await asyncio.wait([socket.serving], timeout=20)
        assert socket.serving.cancelled()

    asyncio.run(serve())
    assert (board.looked, board.listeners) == ({}, 0)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"\x00\x01", 1003),
        ("no JSON", 1008),
        ("{" * 2000, 1008),
        ("3", 1008),
        ("{}", 1008),
        ('{"type": "step"}', 1008),
        ('{"type": "look"}', 1008),
        ('{"type": "look", "cards": "a"}', 1008),
        ('{"type": "look", "cards": [1]}', 1008),
        ('{"type": "look", "cards": [], "more": 1}', 1008),
        (json.dumps({"type": "look", "cards": ["a"] * 300}), 1008),
        ('{"type": "seen", "card": "a", "number": true}', 1008),
        ('{"type": "seen", "card": ["a"], "number": 1}', 1008),
        ('{"type": ["look"], "cards": []}', 1008),
    ],
)
def test_any_other_message_closes_it_with_a_reason(opened, board, message, code, caplog):
    served = opened(board)
    socket = served.socket()
    socket.send(message)
    received(socket)  # the state, which came before it was read
    with pytest.raises(ConnectionClosed, match=str(code)) as raised:
        socket.recv(timeout=20)
    assert raised.value.rcvd.reason
    assert received(served.socket())["type"] == "state"
    assert not caplog.records


def test_a_state_that_cannot_be_made_closes_it_and_is_logged(opened, board, caplog):
    served = opened(board)
    socket = served.socket()
    received(socket)
    board.errors["snapshot"] = RuntimeError("broken")
    board.change()
    with pytest.raises(ConnectionClosed, match="1011"):
        socket.recv(timeout=20)
    assert "broken" in caplog.text
    del board.errors["snapshot"]
    assert received(served.socket())["type"] == "state"
