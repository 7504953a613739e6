"""Serve in the foreground: print the URL, then "ended"."""

from __future__ import annotations

import sys
import time

from parllel.distributed.web import Route, ServerSettings, WebServer, build_app


def sleep(call):
    time.sleep(call.json())
    return "slept"


def main() -> None:
    app = build_app(
        [
            Route("/", {"POST": lambda call: call.json()}),
            Route("/sleep", {"POST": sleep}),
            Route("/running", {"GET": lambda call: app.running}),
        ],
        ServerSettings(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0, end_s=20.0),
    )
    server = WebServer(app)
    server.run(started=lambda: print(server.url, flush=True))
    print("ended")


if __name__ == "__main__":
    main()
