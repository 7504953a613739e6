"""Matching of replies to commands.

    send    expect_reply_to(command)   from now on, only replies to this command are wanted
    read    match(reply)               finds the command by `id`, or by order if the worker repeats no ids

Each command is owed one reply: its entry in `_ANSWERS`, or an `error`. A `step` that ends an episode is owed
an `episode_end` as well. Workers answer in order, so a reply to one command means that no earlier command
will be answered any more.
"""

from __future__ import annotations

from collections import deque
from typing import Any

_ANSWERS = {
    "reset": "ready",
    "step": "step",
    "stop": "stopped",
    "ping": "pong",
    "init_agent": "agent_ready",
    "select_action": "action_selected",
}
# Workers that otherwise repeat ids may leave them out of these.
_OFTEN_WITHOUT_ID = ("error", "episode_end")
_MOST = 10_000  # commands remembered for a worker that reads but never answers


class _Owed:
    __slots__ = ("command", "ends", "number")

    def __init__(self, number: int, command: str) -> None:
        self.number = number
        self.command = command
        self.ends = False  # whether `step` has arrived and `episode_end` has not

    def takes(self, kind: str) -> bool:
        if kind == "error":
            return True
        return kind == ("episode_end" if self.ends else _ANSWERS[self.command])


class OwedReplies:
    """Commands of one worker that await their replies.

    Attributes:
        repeats_ids: whether the worker has repeated the id of a command so far.
    """

    def __init__(self) -> None:
        self.repeats_ids = False
        self._owed: deque[_Owed] = deque(maxlen=_MOST)
        self._newest: _Owed | None = None
        self._n_sent = 0
        self._step_index = 0  # of the last step reply without an id; 0 if there was none

    @property
    def awaited(self) -> str | None:
        """The command whose replies are awaited; None once all have arrived."""
        return None if self._newest is None else self._newest.command

    def next_id(self) -> int:
        """Return the id for the next command."""
        return self._n_sent + 1

    def expect_reply_to(self, command: str) -> None:
        """Record that a command with the id `next_id` was sent."""
        self._n_sent += 1
        self._newest = _Owed(self._n_sent, command)
        self._owed.append(self._newest)

    def match(self, reply: dict[str, Any]) -> bool:
        """Remove the id from a reply. Returns whether the reply answers the newest command."""
        kind, number = reply["type"], reply.pop("id", None)
        owed = self._by_id(number, kind) if number is not None else self._by_counting(kind, reply)
        if owed is None:
            # An error before any command, such as a policy that fails to load, is passed on.
            return kind == "error" and number is None and not self._owed
        return self._take(owed, kind, reply)

    def fail(self, number: int | str | None) -> bool:
        """Record an unreadable reply. Returns whether it answers the newest command."""
        owed = self._find(number) if number is not None else next(iter(self._owed), None)
        return owed is not None and self._take(owed, "error", {})

    def _find(self, number: object) -> _Owed | None:
        if self._newest is not None and self._newest.number == number:
            return self._newest  # nearly always
        return next((owed for owed in self._owed if owed.number == number), None)

    def _by_id(self, number: object, kind: str) -> _Owed | None:
        owed = self._find(number)
        if owed is None or not owed.takes(kind):
            return None
        self.repeats_ids = True
        # From here on a reply without an id is suspect, see `_by_counting`.
        return owed

    def _by_counting(self, kind: str, reply: dict[str, Any]) -> _Owed | None:
        if self.repeats_ids and kind not in _OFTEN_WITHOUT_ID:
            # A worker that repeats ids would have put one here: this line answers no command.
            return None
        if kind == "step":
            # A duplicate: the reply to the next command has the next index.
            index = reply.get("step_index", 0)
            if index and index == self._step_index:
                return None
            self._step_index = index
        elif kind == "ready":
            self._step_index = 0
        return next((owed for owed in self._owed if owed.takes(kind)), None)

    def _take(self, owed: _Owed, kind: str, reply: dict[str, Any]) -> bool:
        # Workers answer in order: earlier commands will get no reply any more.
        while self._owed[0] is not owed:
            self._owed.popleft()
        is_wanted = owed is self._newest
        if kind == "step" and (reply["terminated"] or reply["truncated"]):
            owed.ends = True  # stays open for `episode_end`
            return is_wanted
        self._owed.popleft()
        if is_wanted:
            self._newest = None
        return is_wanted
