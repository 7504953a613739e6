"""Threads for handlers that block.

event loop   submit: counts it, starts a thread if all are busy, puts it into the queue
threads      take from the queue, call, and hand the outcome to the loop, which alone counts it as done

Threads are daemons: a handler that never returns must not keep the process from ending.
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
    """A bounded pool of threads with a bounded queue, for one event loop.

    Args:
        threads: at most; they are started when needed.
        waiting: calls that may wait for a thread.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._most_threads = threads
        self._most = threads + waiting
        self._held = 0  # waiting or running; written by the loop's thread alone
        self._threads: list[threading.Thread] = []
        self._queue: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Call a function in a thread; await the result. Called in the loop's thread.

        Raises:
            WebError: 503, if threads and queue are full.
        """
        if self._held >= self._most:
            raise WebError(503, "all handlers are busy; try again later", ((b"retry-after", b"1"),))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._held += 1
        if self._held > len(self._threads) < self._most_threads:
            self._start_thread()
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
                if not task.future.cancelled():
                    result = task.function(*task.arguments)
            # Whatever it is, SystemExit of a user's function included, belongs to the request and not here.
            except BaseException as raised:
                error = raised
            # A future is the loop's: set here, nothing would wake what awaits it.
            with contextlib.suppress(RuntimeError):  # the loop has ended
                task.loop.call_soon_threadsafe(self._deliver, task.future, result, error)
            # Or the last request's values would live until the next one comes.
            del task, result, error

    def _deliver(
        self, future: asyncio.Future[Any], result: Any, error: BaseException | None
    ) -> None:
        self._held -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            # A future refuses StopIteration, and a loop would end by SystemExit.
            wrapped = error if isinstance(error, Exception) else RuntimeError(repr(error))
            if isinstance(error, StopIteration):
                wrapped = RuntimeError(repr(error))
            wrapped.__cause__ = None if wrapped is error else error
            future.set_exception(wrapped)

    def close(self, timeout_s: float) -> bool:
        """End the threads; idempotent.

        Returns: False if a handler did not return in time; its thread ends when that does.
        """
        threads, self._threads = self._threads, []
        # One for each, after all calls that wait: these are still made.
        for _ in threads:
            self._queue.put(None)
        limit = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)
