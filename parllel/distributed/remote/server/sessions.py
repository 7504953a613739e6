"""The agents that a server holds, by session.

request threads   get, put, remove                    all under one lock, which is held for no agent's work
reaper thread     every so often: remove idle ones    ended by close()

Agents are closed outside of the lock: ending a process may take seconds.
"""

from __future__ import annotations

import re
import threading

from parllel.distributed.remote.server.session import Session
from parllel.distributed.web.web_error import WebError
from parllel.types import Closeable

DEFAULT = "default"  # the session of requests that name none
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAX_REAPS_PER_IDLE = 4


def checked_name(name: object) -> str:
    """Return the name of a session.

    Raises:
        WebError: 400 for another form.
    """
    if name is None:
        return DEFAULT
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise WebError(400, "session: expected 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return name


class SessionStore(Closeable):
    """A bounded number of agents by name; those that are not used end.

    Args:
        most: at the same time.
        idle_s: after which an unused one ends.
    """

    def __init__(self, most: int, idle_s: float) -> None:
        self._most = most
        self._idle_s = idle_s
        self._held: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._reaper: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._held)

    def get(self, name: str) -> Session | None:
        """Return the session of a name, or None."""
        return self._held.get(name)

    def check_room(self, name: str) -> None:
        """Refuse a new session before its agent is made.

        Raises:
            WebError: 503, if there is no room for it.
        """
        # Without the lock: this only spares an agent that would be made in vain, and `put` decides.
        if name not in self._held and len(self._held) >= self._most:
            # The reaper comes by turns, so that some may be idle and not be gone yet.
            self.end_idle()
            if len(self._held) >= self._most:
                message = (
                    f"all {self._most} sessions are in use: dispose of one, or try again later"
                )
                raise WebError(503, message, ((b"retry-after", b"1"),))

    def put(self, name: str, session: Session) -> None:
        """Hold a session, in place of the one that has its name.

        Raises:
            WebError: 503, if there is no room, after the session has been closed.
        """
        with self._lock:
            # The end is looked at under the lock: `close` sets it and takes the sessions under it at once, so
            # that none is put after that and left to nothing.
            full = name not in self._held and len(self._held) >= self._most
            if full or self._end.is_set():
                unwanted: Session | None = session
            else:
                unwanted = self._held.pop(name, None)
                self._held[name] = session
                self._start_reaper()
        if unwanted is not None:
            unwanted.close()
        if unwanted is session:
            raise WebError(503, f"all {self._most} sessions are in use: dispose of one")

    def remove(self, name: str) -> bool:
        """End a session; return whether there was one."""
        with self._lock:
            session = self._held.pop(name, None)
        if session is None:
            return False
        session.close()
        return True

    def end_idle(self) -> None:
        """End the sessions that have not been used for too long."""
        with self._lock:
            idle = {name for name, held in self._held.items() if held.idle_s > self._idle_s}
            ended = [self._held.pop(name) for name in idle]
        for session in ended:
            session.close()

    def _start_reaper(self) -> None:
        if self._reaper is None:
            # A daemon, as a server that is not closed must not keep its process from ending.
            self._reaper = threading.Thread(
                target=self._reap, name="parllel-remote-sessions", daemon=True
            )
            self._reaper.start()

    def _reap(self) -> None:
        # A wait for the end, and no sleep, so that `close` has not to wait for a turn.
        while not self._end.wait(self._idle_s / _MAX_REAPS_PER_IDLE):
            self.end_idle()

    def close(self) -> None:
        """End all sessions; idempotent."""
        with self._lock:
            self._end.set()
            held, self._held = list(self._held.values()), {}
        for session in held:
            session.close()
        # At most it is closing a session, whose process is killed.
        if self._reaper is not None:
            self._reaper.join()
