"""What children do in the tests of conversations."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from parllel.buffers.child_conversation import ChildConversation
from parllel.buffers.conversation import FIRST_WORDS, HEAD


class GoodError(Exception):
    """After which the child goes on."""


class Calls:
    """What a child may be asked."""

    def __init__(self, conversation: ChildConversation, inherited: Any) -> None:
        self._conversation = conversation
        self._inherited = inherited

    def echo(self, value: Any) -> Any:
        return value

    def write(self, array: Any, value: float) -> None:
        array[...] = value

    def write_inherited(self, value: float) -> None:
        self._inherited[...] = value

    def slowly(self, value: Any) -> Any:
        time.sleep(0.2)
        return value

    def refuse(self, text: str) -> None:
        raise GoodError(text)

    def fail(self, text: str) -> None:
        raise LookupError(text)

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        time.sleep(60)

    def unsendable(self) -> Any:
        return threading.Lock()


def talk(
    connection: Connection, closing: str = "", marks: str = "", *, inherited: Any = None
) -> None:
    """Answer calls until it is closed.

    closing: how it goes wrong.
    marks: a folder for files that say which stages were reached.
    """
    conversation = ChildConversation(connection, inherited)
    conversation.send(conversation.answer(FIRST_WORDS, "hello"))
    calls = Calls(conversation, inherited)

    def mark(name: str) -> None:
        if marks:
            (Path(marks) / name).touch()

    def close() -> None:
        mark("asked")
        if closing == "raise":
            raise GoodError("it does not close")
        if closing == "hang":
            time.sleep(60)

    def on_sigterm(*_: Any) -> None:
        mark("terminated")
        if closing != "ignore SIGTERM":
            os._exit(0)

    if marks:
        signal.signal(signal.SIGTERM, on_sigterm)
    try:
        while (request := conversation.next_request()) is not None:
            if request[:1] == b"N":  # a kind of its own: several replies
                _, number = HEAD.unpack_from(request)
                for part in request[HEAD.size :]:
                    conversation.send(HEAD.pack(b"N", number) + bytes([part]))
                continue
            number, op, args = conversation.read_call(request)
            if op == "close":
                conversation.send(conversation.reply_to(number, (Exception,), close))
                while closing in ("stay", "ignore SIGTERM"):
                    time.sleep(0.01)
                mark("left")
                return
            survived = (GoodError, TypeError)
            conversation.send(conversation.reply_to(number, survived, getattr(calls, op), *args))
    except BaseException as error:
        conversation.fail(error, lambda: "what was left")


def fail_while_idle(connection: Connection) -> None:
    """Fail between two requests."""
    conversation = ChildConversation(connection)
    conversation.send(conversation.answer(FIRST_WORDS, "hello"))
    try:
        raise LookupError("while idle")
    except LookupError as error:
        conversation.fail(error, lambda: "what was left")
