"""Requests that are almost right, from a seed, and what a server makes of them."""

from __future__ import annotations

import json
import random
import re
import socket
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

METHODS = (
    b"POST",
    b"GET",
    b"HEAD",
    b"PUT",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"PRI",
    b"post",
    b"P\xffT",
    b"",
)
PATHS = (b"/", b"/health", b"/ready", b"*", b"//", b"/../../etc/passwd", b"/%", b"/%00", b"/?a=%ff&a",
         b"/\xff", b"http://localhost/", b"evil.example:80", b"/" + b"a" * 9000, b"/?" + b"a&" * 3000,
         b"")  # fmt: skip
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1 ", b"")
HEADERS = (
    b"Host: localhost", b"Host: evil.example", b"Host:", b"Host: [::1", b"Host: \xff\xfe", b"Origin: null",
    b"Origin: http://evil.example", b"Origin: \xff", b"Authorization: Basic \xff", b"Authorization: Bearer",
    b"Content-Type: text/plain", b"Content-Type: application/json; charset=utf-7", b"Content-Type: \xff;;;=",
    b"Content-Type: application/x-protobuf", b"Content-Encoding: gzip", b"Content-Length: 0",
    b"Content-Length: 99999999999999999999", b"Content-Length: -1", b"Content-Length: 1, 1",
    b"Content-Length: 0x1",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: identity",
    b"Transfer-Encoding:\tchunked", b"Expect: 100-continue", b"Expect: 999", b"Upgrade: websocket",
    b"Upgrade: h2c", b"Connection: upgrade", b"Connection: close", b"Connection: keep-alive", b"Trailer: x",
    b"Range: bytes=0-1", b"X-Session: \xff", b"Session: " + b"s" * 5000, b"Sec-Fetch-Site: cross-site",
    b" folded: 1", b"No colon", b": no name", b"X\x00: 1", b"X: \x00", b"X: " + b"a" * 20000, b"X: 1\r\nX: 2",
)  # fmt: skip
JSON = (
    b"NaN", b"-Infinity", b"1e999", b"-0", b"1" * 400, b"1" * 4000, b"[" * 60 + b"]" * 60, b"[" * 5000,
    b'{"a":' * 5000, b'"\\ud800"', b'"\xff"', b'"\x00"', b'{"a":1,"a":2}', b"null", b"true", b"[]", b"{}",
    b'""',
    b"\xef\xbb\xbf1", "1".encode("utf-16"), b"1 1", b"'a'", b"[" + b"0," * 30000 + b"0]", b"", b"\x00",
)  # fmt: skip
# What could stand there.
LIKELY = (
    b"0",
    b"1",
    b"-1",
    b"2.5",
    b"true",
    b"null",
    b'"rock"',
    b'"a"',
    b"[1]",
    b'{"step":1}',
    b"[]",
)
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


def fuzzed_requests(seed, n, bodies, content_type, token=None, paths=None):
    """Yield requests as bytes.

    bodies: right ones, as bytes; JSON ones may also have their values exchanged.
    paths: where each of the bodies is right; "/" for all by default.
    """
    rng = random.Random(seed)
    for _ in range(n):
        way = rng.random()
        if way < 0.08:
            yield rng.randbytes(rng.randrange(1, 2000))
            continue
        right = rng.choice(range(len(bodies)))
        body = fuzzed_body(rng, bodies[right], content_type)
        headers = [b"Host: localhost", b"Content-Type: " + content_type]
        if token is not None:
            headers.append(b"Authorization: Bearer " + token)
        line = b"POST " + (b"/" if paths is None else paths[right]) + b" HTTP/1.1"
        if way > 0.7:  # otherwise the body is all that is wrong
            if rng.random() < 0.3:
                line = b" ".join((rng.choice(METHODS), rng.choice(PATHS), rng.choice(VERSIONS)))
            for _ in range(rng.randrange(4)):
                headers[rng.randrange(len(headers))] = rng.choice(HEADERS)
                headers.append(rng.choice(HEADERS))
        if rng.random() < 0.25:
            headers.append(b"Transfer-Encoding: chunked")
            body = _chunked(rng, body)
        else:
            off = rng.choice((0, 0, 0, 0, 0, 0, -1, 1, 100))
            headers.append(b"Content-Length: %d" % max(0, len(body) + off))
        request = b"\r\n".join([line, *headers, b"", body])
        yield _mutated(rng, request) if way > 0.9 else request


def fuzzed_body(rng, body, content_type=b"application/json"):
    """Return a body that is almost right, or far from it."""
    way = rng.random()
    if way < 0.15:
        return body
    if way < 0.4:
        return _mutated(rng, body)
    if way < 0.5 or not content_type.endswith(b"json"):
        return rng.choice((rng.randbytes(rng.randrange(500)), body[: rng.randrange(len(body) + 1)]))
    if way < 0.65:
        return rng.choice(JSON)
    return _exchanged(rng, body)


def _exchanged(rng, body):
    """Put something else in the place of one value, however deep."""
    value = json.loads(body)
    places = []

    def visit(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                visit(node[key])

    if isinstance(value, (dict, list)):
        visit(value)
    if not places:
        return rng.choice(JSON)
    node, key = rng.choice(places)
    if isinstance(node, dict) and rng.random() < 0.2:
        del node[key]
        return json.dumps(value).encode()
    new = rng.choice(JSON if rng.random() < 0.5 else LIKELY)
    node[key] = "\x1aHERE\x1a"
    return json.dumps(value).encode().replace(b'"\\u001aHERE\\u001a"', new)


def _mutated(rng, data):
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(changed) + 1)
        way = rng.randrange(4)
        if way == 0:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif way == 1:
            del changed[at : at + rng.randrange(1, 9)]
        elif way == 2:
            changed[at : at + 1] = bytes([rng.randrange(256)])
        else:
            changed[at:at] = changed[max(0, at - rng.randrange(1, 40)) : at]
    return bytes(changed)


def _chunked(rng, body):
    parts, at = [], 0
    while at < len(body):
        size = rng.randrange(1, max(2, len(body)))
        part = body[at : at + size]
        extension = rng.choice((b"", b"", b"", b";a=b", b";" + b"x" * 500, b" "))
        length = rng.choice((b"%x" % len(part),) * 12 + (b"-1", b"", b"g", b"f" * 20, b"0x1"))
        parts.append(
            length + extension + b"\r\n" + part + rng.choice((b"\r\n",) * 9 + (b"\n", b""))
        )
        at += size
    end = (b"0\r\n\r\n",) * 8 + (
        b"",
        b"0\r\n",
        b"0\r\nX: 1\r\n\r\n",
        b"00000000000000000000000\r\n\r\n",
    )
    return b"".join(parts) + rng.choice(end)


def send_fuzzed(url, requests, timeout_s=30.0):
    """Send each in a connection of its own, which is then half closed; return how often each status came.

    Raises:
        AssertionError: with the request, if the server had an error or did not end the connection.
    """
    address = (urlsplit(url).hostname, urlsplit(url).port)
    statuses = Counter()
    for number, request in enumerate(requests):
        received = bytearray()
        with socket.create_connection(address, timeout_s) as connection:
            try:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(65536):
                    received += part
            except TimeoutError:
                raise AssertionError(f"request {number} was held: {request[:2000]!r}") from None
            except OSError:  # it has been closed without reading all
                pass
        found = [int(status) for status in _STATUS.findall(received)]
        statuses.update(found or ["closed"])
        wrong = [status for status in found if status >= 500]
        assert not wrong, f"request {number}: {bytes(received[:500])!r} to {request[:2000]!r}"
    return statuses


def resident_bytes(pid):
    """Return the memory that a process takes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096
