"""Thread pool for blocking handlers::

    event loop   submit: counts the call, starts a thread if all are busy, puts the call into the queue
    threads      take a call from the queue, run it, and hand its result to the loop
    event loop   _deliver: counts the call as done and sets its future

Threads are daemons: a handler that never returns must not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from parllel.distributed.web.web_error import WebError


class _Task(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class HandlerPool:
    """Bounded thread pool with a bounded queue, for one event loop.

    Args:
        threads: maximum number of threads, which are started on demand.
        waiting: maximum number of calls that wait for a thread.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._most_threads = threads
        self._most = threads + waiting
        self._held = 0  # calls waiting or running; written by the loop's thread only, hence no lock
        self._threads: list[threading.Thread] = []
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Run a function in a thread and return a future of its result. Called in the loop's thread.

        Raises:
            WebError: 503, if all threads are busy and the queue is full.
        """
        # A bound instead of an endless queue: a client is better served by 503 and a retry than by a reply
        # after its own time-out.
        if self._held >= self._most:
            raise WebError(503, "all handlers are busy; try again later", ((b"retry-after", b"1"),))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        # As many calls as threads: this one would have to wait.
        if self._held >= len(self._threads) < self._most_threads:
            self._start_thread()
        # After the start: a call whose thread cannot start is never delivered, and would be counted for ever.
        self._held += 1
        self._queue.put(_Task(loop, future, function, arguments))
        return future

    def _start_thread(self) -> None:
        name = f"parllel-web-handler-{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            result, error = None, None
            try:
                # Cancelled while it waited: its connection was closed, or the server shut down.
                if not task.future.cancelled():
                    result = task.function(*task.arguments)
            # Any exception belongs to the request, SystemExit of a user's function included: the thread lives
            # on.
            except BaseException as raised:
                error = raised
            # Futures are not thread-safe: set here, the loop would not wake up for whoever awaits it.
            with contextlib.suppress(RuntimeError):  # the loop has ended
                task.loop.call_soon_threadsafe(self._deliver, task.future, result, error)
            # Otherwise an idle thread would keep the last request's body and result alive.
            del task, result, error

    def _deliver(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> None:
        # Also for a cancelled call: its place is free only now that the thread is done with it.
        self._held -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            # Futures reject StopIteration, and SystemExit would stop the event loop.
            wrapped = error if isinstance(error, Exception) else RuntimeError(repr(error))
            if isinstance(error, StopIteration):
                wrapped = RuntimeError(repr(error))
            wrapped.__cause__ = None if wrapped is error else error
            future.set_exception(wrapped)

    def close(self, timeout_s: float) -> bool:
        """Stop the threads. Idempotent.

        Returns: False if a handler did not return in time. Its thread stops when the handler
            returns.
        """
        threads, self._threads = self._threads, []
        # One sentinel per thread, queued after the waiting calls, which are still run.
        for _ in threads:
            self._queue.put(None)
        limit = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)
