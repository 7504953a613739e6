"""WebSocket connections of pages: a board's state and frames.

    board's threads   changed(): wakes the loop, once until it has looked
    pump              one task: sends the state as text to all viewers, at most 20 times a second and at least
                      every three seconds
    viewer            receives which cards it looks at and what it has seen; a separate task sends

    A slow viewer does not hold up the others: it gets the newest state once it has received the last one, and
    the newest frame of each card once it has seen the last one. Everything in between is dropped.

server -> client   text     {"type": "state", ...}
                   binary   4 bytes, big-endian: length of the header;
                            header {"card", "number", "episode", "step"}; PNG
client -> server   text     {"type": "look", "cards": [...]}, {"type": "seen", "card": ..., "number": ...}

Everything except `changed` runs in the loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from parllel.distributed.operators.board.board import Board
from parllel.distributed.operators.dashboard.state_json import state_bytes
from parllel.distributed.web.web_socket import WebSocket
from parllel.distributed.wire.json_text import json_bytes, parse_json
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.wire_error import WireError

_LOGGER = logging.getLogger("parllel.distributed.operators.dashboard")
_STATES_PER_S = 20.0
_MAX_SILENCE_S = 3.0  # between states, so that a page knows that it is connected
_MAX_CARDS = 256  # that one viewer may look at
_LIMITS = Limits(nbytes=1 << 16, depth=4, items=2 * _MAX_CARDS)


class MessageRefusedError(Exception):
    """Raised for an invalid message of a client; closes its WebSocket.

    Attributes:
        code: 1003 for binary messages, 1008 for anything else.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Viewers:
    """Shows a board to any number of viewers.

    Args:
        board: the board to show. It is observed only while there are viewers.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._viewers: set[_Viewer] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._is_woken = False  # set by any thread, cleared by the pump before it looks

    async def serve(self, socket: WebSocket) -> None:
        """Show the board to one viewer until its WebSocket is closed."""
        viewer = _Viewer(self._board, socket)
        with self._joined(viewer):
            tasks = [asyncio.create_task(viewer.send_all()), asyncio.create_task(viewer.take_all())]
            try:
                # Whichever ends first ends both: the client left, or sent an invalid message.
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            except MessageRefusedError as error:
                socket.close(error.code, str(error))
            finally:
                for task in tasks:
                    task.cancel()
                # Before the wait, which is cancelled if the connection is lost meanwhile.
                self._board.leave(viewer)
                await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.contextmanager
    def _joined(self, viewer: _Viewer) -> Iterator[None]:
        if not self._viewers:
            # The first viewer starts the pump, the last one stops it: an unwatched board costs nothing.
            self._loop = asyncio.get_running_loop()
            self._end = self._board.listen(self._changed)
            self._pumping = asyncio.create_task(self._pump())
        self._viewers.add(viewer)
        # At once: the next change may be far off.
        viewer.show(self._state())
        try:
            yield
        finally:
            self._viewers.discard(viewer)
            if not self._viewers:
                self._end()
                self._pumping.cancel()

    def _changed(self) -> None:
        """Wake the pump. Called by any thread after a change."""
        loop = self._loop
        # Once per look: a board may change thousands of times meanwhile.
        if not self._is_woken and loop is not None:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._woken.set)

    async def _pump(self) -> None:
        try:
            # Not for ever, as `wait_for` of Python before 3.12 may lose a cancellation.
            while self._viewers:
                # A page that hears nothing for longer reports that it is offline. It does not get to see the
                # pings of the WebSocket.
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), _MAX_SILENCE_S)
                self._woken.clear()
                # Cleared before the look: a change from here on wakes the pump again.
                self._is_woken = False
                state = self._state()
                for viewer in self._viewers:
                    viewer.show(state)
                await asyncio.sleep(1 / _STATES_PER_S)
        except Exception:
            _LOGGER.exception("the state of a board cannot be shown")
            # Otherwise pages would show an old state as the newest.
            for viewer in self._viewers:
                viewer.drop()

    def _state(self) -> tuple[str, dict[str, int]]:
        """Return the state as text, and the number of each card's newest frame."""
        snapshot = self._board.snapshot()
        frames = {
            card["id"]: card["frame"] for card in snapshot["cards"] if card["frame"] is not None
        }
        return state_bytes({"type": "state", **snapshot}).decode(), frames


class _Viewer:
    """One page: the cards it looks at, what it has seen, and what to send next."""

    def __init__(self, board: Board, socket: WebSocket) -> None:
        self._board = board
        self._socket = socket
        self._state: str | None = None
        self._frames: dict[str, int] = {}  # number of the newest, by card
        self._cards: frozenset[str] = frozenset()
        self._sent: dict[str, int] = {}  # number of the last one sent, by card
        self._unseen: set[str] = set()  # cards whose last sent frame was not confirmed as seen
        self._due = asyncio.Event()

    def show(self, state: tuple[str, dict[str, int]]) -> None:
        """Send a state, replacing one that has not been sent yet."""
        self._state, self._frames = state
        # A removed card's id may be reused before its last frame was seen.
        for card in set(self._sent) - set(self._frames):
            self._forget(card)
        self._due.set()

    def _take(self, message: str | bytes) -> None:
        if not isinstance(message, str):
            raise MessageRefusedError(1003, "expected text")
        try:
            values = parse_json(message.encode("utf-8", "surrogatepass"), _LIMITS)
        except WireError as error:
            raise MessageRefusedError(1008, f"expected JSON: {error}") from error
        kind = values.get("type") if isinstance(values, dict) else None
        if kind == "look" and set(values) == {"type", "cards"}:
            self._look(values["cards"])
        elif kind == "seen" and set(values) == {"type", "card", "number"}:
            self._see(values["card"], values["number"])
        else:
            raise MessageRefusedError(
                1008, "expected 'look' with cards, or 'seen' with card and number"
            )

    def _look(self, cards: Any) -> None:
        if not isinstance(cards, list) or not all(isinstance(card, str) for card in cards):
            raise MessageRefusedError(1008, "look: cards: expected a list of ids")
        if len(cards) > _MAX_CARDS:
            raise MessageRefusedError(1008, f"look: cards: expected at most {_MAX_CARDS}")
        before, self._cards = self._cards, frozenset(cards)
        # Frames sent before the page looked away may never have been painted.
        for card in (self._cards - before) | (set(self._sent) - self._cards):
            self._forget(card)
        self._board.look(self, self._cards)
        self._due.set()

    def _forget(self, card: str) -> None:
        self._sent.pop(card, None)
        self._unseen.discard(card)

    def _see(self, card: Any, number: Any) -> None:
        if not isinstance(card, str) or isinstance(number, bool) or not isinstance(number, int):
            raise MessageRefusedError(1008, "seen: expected the id of a card and an integer")
        if self._sent.get(card) == number:
            self._unseen.discard(card)
            self._due.set()

    def drop(self) -> None:
        """Close the WebSocket after an error of the server."""
        self._socket.close(1011, "internal error; see the server's log")

    async def take_all(self) -> None:
        """Process messages until the WebSocket is closed.

        Raises:
            MessageRefusedError: for an invalid message.
        """
        async for message in self._socket:
            self._take(message)

    async def send_all(self) -> None:
        """Send what is due, as fast as the client receives it, until the WebSocket is closed."""
        while True:
            await self._due.wait()
            self._due.clear()
            state, self._state = self._state, None
            if state is not None:
                await self._socket.send(state)
            for card in self._cards:
                if card in self._frames and card not in self._unseen:
                    await self._send_frame(card)
            # Without the confirmation, messages would queue in the buffers in between and arrive outdated.
            await self._socket.confirm()

    async def _send_frame(self, card: str) -> None:
        # Fetched now: it may be newer than when the state was taken.
        try:
            frame = self._board.frame(card)
        except KeyError:  # the card was removed
            return
        if frame is None or frame.number == self._sent.get(card):
            return
        self._sent[card] = frame.number
        self._unseen.add(card)
        shown = {"number": frame.number, "episode": frame.episode, "step": frame.step}
        header = json_bytes({"card": card, **shown})
        await self._socket.send(len(header).to_bytes(4, "big") + header + frame.png)
