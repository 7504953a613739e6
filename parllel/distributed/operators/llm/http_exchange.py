"""One POST after the other to a server, each with one deadline for all of it.

    caller's thread     post: hands a request over, waits for the reply, or for a signal
    thread of the loop  connects, writes and reads; ends the exchange at its deadline
    close               ends the loop, then waits for its thread

A limit of httpx2 begins anew with each byte that comes, so that a reply which trickles in would never be
late. Only cancelling a task ends it in any phase, the name's resolution included; hence the loop. It has a
thread of its own, as the caller's may have a loop that runs.

Raises:
    ImportError: if httpx2 is not installed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent import futures
from contextlib import suppress
from typing import NamedTuple

from parllel.errors import install_command

try:
    import httpx2
except ModuleNotFoundError as error:
    if error.name != "httpx2":
        raise
    raise ImportError(f"language models need httpx2: {install_command('operators')}") from error

from parllel.distributed.operators.local_url import is_local
from parllel.errors import ClosedError
from parllel.types import Closing

_CLOSE_S = 5.0


class ExchangeError(Exception):
    """No whole reply came; a new attempt may get one."""


class ReplyTooLongError(Exception):
    """The reply has more bytes than are allowed."""


class HttpReply(NamedTuple):
    """What a server replied; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpExchange(Closing):
    """Post to one URL, over a connection that is kept open.

    Proxies of the environment are asked for servers elsewhere, and never for one on this machine. Redirects
    are replies like any other, and not followed.

    Args:
        url: http or https.
        headers: of each request.
        most_bytes: of a reply.

    Raises:
        ImportError: for a SOCKS proxy whose library is not installed.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, most_bytes: int = 4 << 20) -> None:
        self._url, self._most_bytes = url, most_bytes
        self._client = httpx2.AsyncClient(
            # What is packed may be a thousand times as long as it comes.
            headers={"Accept-Encoding": "identity", **headers},
            timeout=None,
            trust_env=not is_local(url),
            follow_redirects=False,
        )
        # Nothing is opened before the first question: a client that is checked and dropped leaves no thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def post(self, body: bytes, seconds: float) -> HttpReply:
        """Return the reply to a POST of JSON.

        seconds: until its last byte has come.

        Raises:
            TimeoutError: if that takes longer.
            ExchangeError: if the server cannot be reached, or the connection breaks.
            ReplyTooLongError: if the reply is longer than allowed.
            ClosedError: after `close`.
        """
        loop = self._running()  # first: a coroutine that is made is to be awaited
        reply = asyncio.wait_for(self._posted(body), seconds)
        future = asyncio.run_coroutine_threadsafe(reply, loop)
        try:
            return future.result()
        except asyncio.TimeoutError:
            raise TimeoutError(f"no reply within {seconds:g} s") from None
        except futures.CancelledError:
            raise ClosedError("HttpExchange: closed while it was used") from None
        finally:
            future.cancel()  # after a signal in this thread; nothing once it is done

    async def _posted(self, body: bytes) -> HttpReply:
        headers = {"Content-Type": "application/json"}
        try:
            async with self._client.stream(
                "POST", self._url, content=body, headers=headers
            ) as reply:
                parts, n = [], 0
                async for part in reply.aiter_bytes():
                    n += len(part)
                    if n > self._most_bytes:
                        raise ReplyTooLongError(f"a reply of more than {self._most_bytes} bytes")
                    parts.append(part)
        except httpx2.DecodingError as error:
            return HttpReply(reply.status_code, {}, repr(error).encode())
        except (httpx2.HTTPError, OSError) as error:
            raise ExchangeError(f"{type(error).__name__}: {error}") from None
        found = {name.lower(): value for name, value in reply.headers.items()}
        return HttpReply(reply.status_code, found, b"".join(parts))

    def _running(self) -> asyncio.AbstractEventLoop:
        # Two threads may ask first at the same time; and none may start a loop after `close` took it away.
        with self._lock:
            if self._closed:
                raise ClosedError("HttpExchange: used after it was closed")
            if self._loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=loop.run_forever, name="parllel-llm", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self) -> None:
        """End what is being asked, and close the connection; may be called twice."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        ending = asyncio.run_coroutine_threadsafe(self._ended(), loop)
        with suppress(futures.TimeoutError):  # then the thread ends with the process
            ending.result(_CLOSE_S)
        # After all tasks have ended: what waits in `post` has its answer before the loop stands still.
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_S)
        if (
            not thread.is_alive()
        ):  # else a name is still being resolved, which nothing can interrupt
            loop.close()

    async def _ended(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()
        await asyncio.get_running_loop().shutdown_default_executor()
