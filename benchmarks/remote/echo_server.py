"""Serve an echo of JSON, bare or behind all guards; prints its URL.

python -m benchmarks.remote.echo_server bare|guarded|threads TOKEN
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from parllel.distributed.web import Request, Route, ServerSettings, WebServer, build_app
from parllel.distributed.wire import json_bytes, parse_json


async def bare(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Answer as an application does that checks nothing but the JSON."""
    message = await receive()
    body = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    reply = json_bytes(parse_json(body))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": reply})


async def echo(call: Request) -> Any:
    """Answer on the event loop."""
    return call.json()


def echo_in_thread(call: Request) -> Any:
    """Answer in the pool of threads."""
    return call.json()


def main(kind: str, token: str) -> None:
    """Serve until a signal."""
    if kind == "bare":
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(
            bare,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=75,
        )
        uvicorn.Server(config).run(sockets=[listening])
        return
    handler = echo if kind == "guarded" else echo_in_thread
    settings = ServerSettings(token=token, requests_per_s=1e6)
    server = WebServer(build_app([Route("/", {"POST": handler})], settings))
    server.run(lambda: print(server.url, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
