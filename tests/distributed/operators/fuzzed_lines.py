"""Lines that a driver would not send: broken, foreign, and nearly right."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

GOOD: list[dict[str, Any]] = [
    {"cmd": "reset", "seed": 42},
    {"cmd": "reset", "seed": 1, "max_steps": 3, "frame": "png", "id": 3},
    {"cmd": "step"},
    {"cmd": "step", "frame": "rgb", "id": "a"},
    {"cmd": "step", "action": 1},
    {"cmd": "ping"},
    {"cmd": "init_agent", "game_name": "g", "player_id": "p", "seed": 2},
    {"cmd": "init_agent", "game_name": "g", "player_id": "p", "env_id": "none", "env_kwargs": {}},
    {
        "cmd": "select_action",
        "player_id": "p",
        "observation": [0.5, {"a": [1]}],
        "legal_actions": [0, 1],
        "info": {"x": None},
        "text": "go",
    },
]
ODD = [
    *(None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**64, -(2**200), 10**400, 1e308, 5e-324),
    *("", "reset", "\u0000", "\U0001f600", "x" * 1000, [], {}, [[]], {"": {}}, [None] * 100),
    *("png", "rgb", "id", ["step"], {"cmd": "step"}),
]
FRAGMENTS = [
    *(b"NaN", b"-Infinity", b"1e999", b"\xff", b"\\ud800", b'"', b"{", b"}", b"[", b"]", b","),
    *(b"null", b"\x00", b"\r", b"\\", b"\xe2\x80\xa8", b"0" * 300, b"[" * 2000, b'{"a":' * 2000),
]


def fuzzed_lines(n: int, seed: int) -> Iterator[bytes]:
    """Return `n` lines without newlines; none is a `stop`."""
    draw = random.Random(seed)
    for _ in range(n):
        line = _line(draw).replace(b"\n", b" ")
        # Whatever spells it: the worker would end, as it should.
        yield b"stop" if _stops(line) else line


def _stops(line: bytes) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("cmd") == "stop"


def _line(draw: random.Random) -> bytes:
    command = dict(draw.choice(GOOD))
    kind = draw.random()
    if kind < 0.2:
        return json.dumps(command).encode()
    if kind < 0.6:
        for _ in range(draw.randint(1, 3)):
            name = draw.choice([*command, "id", "seed", "frame", "action", "new"])
            command[name] = draw.choice(ODD)
        if draw.random() < 0.2:
            command.pop(draw.choice(list(command)))
        return json.dumps(command, ensure_ascii=draw.random() < 0.5).encode()
    line = bytearray(json.dumps(command).encode())
    for _ in range(draw.randint(1, 4)):
        i, j = sorted(draw.randrange(len(line) + 1) for _ in range(2))
        if draw.random() < 0.5:
            line[i:i] = draw.choice(FRAGMENTS)
        elif draw.random() < 0.5:
            line[i : i + 1] = bytes([draw.randrange(256)])
        else:
            line[i:j] = line[i:j][:: draw.choice([-1, 1])][: draw.randrange(20)]
    return bytes(line)
