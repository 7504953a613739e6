"""A web server that forks a worker for each request; workers of /stay remain after their answer.

Prints its port. Ends at SIGTERM, without its workers.
"""

from __future__ import annotations

import os
import signal
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ForkingMixIn


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answer = str(os.getpid()).encode()
        self.send_response(200)
        self.send_header(
            "Content-Length", str(len(answer))
        )  # the connection stays as long as the worker
        self.end_headers()
        self.wfile.write(answer)
        if self.path == "/stay":
            time.sleep(60)

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ForkingMixIn, HTTPServer):
    block_on_close = False


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
with Server(("127.0.0.1", 0), Handler) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
