"""Sessions of a server, by name::

    request threads   get, put, remove                      under one lock, never held while an agent works
    reaper thread     periodically: closes idle sessions    stopped by close()

A session is removed under the lock and closed outside it, because closing a process may take seconds. The
thread that removes a session closes it, so each is closed exactly once.
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
    """Check the name of a session and return it; None gives the default session.

    Raises:
        WebError: 400 for an invalid name.
    """
    if name is None:
        return DEFAULT
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise WebError(400, "session: expected 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return name


class SessionStore(Closeable):
    """Stores a bounded number of sessions, keyed by name. Idle sessions are closed.

    Args:
        most: maximum number of sessions.
        idle_s: time in seconds after which an unused session is closed.
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
        """Return the session with this name, or None. Other threads may close it at any time."""
        # No lock: a single look-up of a dict is atomic.
        return self._held.get(name)

    def check_room(self, name: str) -> None:
        """Refuse a new session before its agent is built.

        Raises:
            WebError: 503, if there is no room for the session.
        """
        # Without the lock: this only avoids building an agent in vain. `put` decides.
        if name not in self._held and len(self._held) >= self._most:
            # The reaper runs periodically, so some sessions may be idle and not closed yet.
            self.end_idle()
            if len(self._held) >= self._most:
                message = (
                    f"all {self._most} sessions are in use; dispose of one, or try again later"
                )
                raise WebError(503, message, ((b"retry-after", b"1"),))

    def put(self, name: str, session: Session) -> None:
        """Store a session, replacing any session of the same name. The store closes it.

        Raises:
            WebError: 503, if there is no room. The session is then closed.
        """
        with self._lock:
            # `_end` is checked under the lock under which `close` sets it and takes all sessions. A session
            # put after that would never be closed.
            full = name not in self._held and len(self._held) >= self._most
            if full or self._end.is_set():
                unwanted: Session | None = session
            else:
                unwanted = self._held.pop(name, None)
                self._held[name] = session
                self._start_reaper()
        if unwanted is not None:
            unwanted.close()
        # Raised after closing, so that a refused session leaves no process behind.
        if unwanted is session:
            raise WebError(503, f"all {self._most} sessions are in use; dispose of one")

    def remove(self, name: str) -> bool:
        """Close a session. Returns whether it existed."""
        with self._lock:
            session = self._held.pop(name, None)
        if session is None:
            return False
        session.close()
        return True

    def end_idle(self) -> None:
        """Close the sessions that have been idle for too long."""
        with self._lock:
            # A session that a request has looked up but not yet used counts as idle: the request then finds
            # its agent closed, and reports that there is none.
            idle = {name for name, held in self._held.items() if held.idle_s > self._idle_s}
            ended = [self._held.pop(name) for name in idle]
        for session in ended:
            session.close()

    def _start_reaper(self) -> None:
        if self._reaper is None:
            # A daemon, so that a server that is never closed does not keep its process alive.
            self._reaper = threading.Thread(
                target=self._reap, name="parllel-remote-sessions", daemon=True
            )
            self._reaper.start()

    def _reap(self) -> None:
        # Waits for the event instead of sleeping, so that `close` ends it at once.
        while not self._end.wait(self._idle_s / _MAX_REAPS_PER_IDLE):
            self.end_idle()

    def close(self) -> None:
        """Close all sessions and stop the reaper. Idempotent."""
        with self._lock:
            self._end.set()
            held, self._held = list(self._held.values()), {}
        for session in held:
            session.close()
        # It may still be closing a session, which takes as long as killing a process.
        if self._reaper is not None:
            self._reaper.join()
