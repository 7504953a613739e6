"""What tests of boards share."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from parllel.distributed.operators import OperatorConfig

LONG_S = 30.0
WORKER = Path(__file__).with_name("held_worker.py")
Shown = dict[str, Any]


def until(board: Any, holds: Callable[[Shown], bool], timeout_s: float = LONG_S) -> Shown:
    """Return the first snapshot for which something holds."""
    changed = threading.Event()
    end_listening = board.listen(changed.set)
    end = time.monotonic() + timeout_s
    try:
        while True:
            changed.clear()
            shown: Shown = board.snapshot()
            if holds(shown):
                return shown
            left_s = end - time.monotonic()
            assert left_s > 0, shown
            changed.wait(left_s)
    finally:
        end_listening()


def settled(board: Any, *statuses: str, cards: list[str] | None = None) -> Shown:
    """Return the first snapshot in which all cards have one of these statuses."""

    def holds(shown: Shown) -> bool:
        return bool(shown["cards"]) and all(
            card["status"] in statuses
            for card in shown["cards"]
            if cards is None or card["id"] in cards
        )

    return until(board, holds)


def begin(board: Any, seed: int | None = None) -> Shown:
    """Reset all cards, and return the first snapshot in which all are ready."""
    board.reset(seed)
    return settled(board, "ready")


def card_of(shown: Shown, card_id: str) -> Shown:
    """Return one card of a snapshot."""
    (card,) = [card for card in shown["cards"] if card["id"] == card_id]
    return card


class Held:
    """Operators of held_worker.py, whose steps a test holds and lets go.

    folder: of the files that the workers look at.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def config(self, name: str) -> OperatorConfig:
        """Return an operator."""
        words = [sys.executable, "-S", "-E", str(WORKER), str(self.folder), name]
        return OperatorConfig("program", name, worker=words)

    def hold(self, name: str) -> None:
        """Let the operator's next steps wait."""
        self.set(name, "hold")

    def set(self, name: str, what: str) -> None:
        """Make one of its files."""
        (self.folder / f"{name}.{what}").touch()

    def unset(self, name: str, what: str) -> None:
        """Remove one of its files."""
        (self.folder / f"{name}.{what}").unlink(missing_ok=True)

    def let_go(self, name: str) -> None:
        """Let the operator answer."""
        self.unset(name, "within")
        self.unset(name, "hold")

    def await_step(self, name: str) -> None:
        """Wait until the operator is within a step."""
        end = time.monotonic() + LONG_S
        while not (self.folder / f"{name}.within").exists():
            assert time.monotonic() < end
            time.sleep(0.01)

    def pid_of(self, name: str) -> int:
        """Return the process id of the operator's newest worker."""
        return int((self.folder / f"{name}.pid").read_text())

    def kill(self, name: str) -> None:
        """Kill the operator's newest worker if it runs."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = self.pid_of(name)
            # Its number may be another's by now.
            if str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
