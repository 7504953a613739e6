"""Where a server is reached, printed for whoever started it."""

from __future__ import annotations

import sys

from parllel.web.web_server import WebServer


def announce(server: WebServer, ending: str = "") -> None:
    """Print the URL of a server, and whom else it lets in where it is reached from other machines.

    ending: of each URL that is printed, such as a query.

    The first line is for programs as well, on standard output: "serving on URL". Standard error has the rest.
    """
    print(f"serving on {server.url}{ending}", flush=True)
    if server.is_local:
        return
    host, elsewhere = server.settings.host, server.network_url
    if elsewhere is not None and elsewhere != server.url:
        print(f"from other machines: {elsewhere}{ending}", file=sys.stderr)
    print(
        f"warning: at {host} every machine that reaches this one can connect. Nothing is encrypted, so the "
        "token can be read on its way, and whoever has it can use this server. Listen on 127.0.0.1 and come "
        "through ssh, or put a proxy before it that encrypts",
        file=sys.stderr,
        flush=True,
    )
