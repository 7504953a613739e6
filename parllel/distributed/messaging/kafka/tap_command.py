"""The command `parllel messaging tap`, which prints the messages of a run."""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from parllel.distributed.messaging.kafka.client_settings import ClientSettings
from parllel.distributed.messaging.kafka.run_reader import RunReader
from parllel.distributed.messaging.kafka.run_topics import KINDS
from parllel.distributed.messaging.kafka_message import KafkaMessage

_SLICE_S = 0.2
_ANSWER_S = 10.0
# Maximum length of a payload on a line; --json prints all of it.
_WIDTH = 80
_MAX_NUMBERS = 8


def tap(arguments: argparse.Namespace) -> int:
    """Print the messages of a run, or the runs of a broker. Returns the exit status."""
    _check(arguments)
    config = read_properties(arguments.config) if arguments.config else {}
    reader = RunReader(ClientSettings(arguments.bootstrap, timeout_s=_ANSWER_S, config=config))
    try:
        if arguments.run is None:
            return _print_runs(reader, arguments)
        return _print_messages(reader, arguments)
    except KeyboardInterrupt:  # the usual way to end it
        return 0
    finally:
        reader.close()


def _check(arguments: argparse.Namespace) -> None:
    if arguments.count is not None and arguments.count < 1:
        raise ValueError(f"--count: expected at least 1, got {arguments.count}")
    if arguments.timeout is not None and not 0 < arguments.timeout < math.inf:
        raise ValueError(f"--timeout: expected seconds above 0, got {arguments.timeout}")


def _print_runs(reader: RunReader, arguments: argparse.Namespace) -> int:
    runs = reader.runs()
    for run, kinds in runs.items():
        print(json.dumps({"run": run, "kinds": kinds}) if arguments.json else run)
    if not runs:
        print(f"{arguments.bootstrap} has no topics of runs", file=sys.stderr)
    return 0


def _print_messages(reader: RunReader, arguments: argparse.Namespace) -> int:
    reader.follow(arguments.run, arguments.kind or KINDS, from_start=arguments.from_start)
    print(f"reading run {arguments.run!r} of {arguments.bootstrap}", file=sys.stderr, flush=True)
    wanted = frozenset(arguments.env_id)
    printed = 0
    for message in _until(reader, arguments.timeout):
        if wanted and message.env_id not in wanted:
            continue
        print(_as_json(message) if arguments.json else _as_line(message), flush=True)
        printed += 1
        if printed == arguments.count:
            break
    if reader.ended:
        print(f"run {arguments.run!r} has ended: its topics are deleted", file=sys.stderr)
    if reader.unreadable:
        print(f"{reader.unreadable} records have no messages of this version", file=sys.stderr)
    if arguments.count is not None and printed < arguments.count:
        print(f"{printed} of {arguments.count} messages arrived", file=sys.stderr)
        return 1
    return 0


def _until(reader: RunReader, timeout_s: float | None) -> Iterator[KafkaMessage]:
    end = math.inf if timeout_s is None else time.monotonic() + timeout_s
    while not reader.ended and (left := end - time.monotonic()) > 0:
        yield from reader.read(min(left, _SLICE_S))


def _as_line(message: KafkaMessage) -> str:
    lease = f"{message.lease}.{message.epoch}.{'-' if message.step is None else message.step}"
    what = message.message_type.value
    if message.custom_topic is not None:
        what += f" {message.custom_topic}"
    payload = json.dumps(_plain(message.payload, whole=False), ensure_ascii=False)
    if len(payload) > _WIDTH:
        payload = payload[: _WIDTH - 3] + "..."
    parts = (message.env_id, lease, what, f"{message.sender_id} -> {message.recipient_id}", payload)
    return "  ".join(_printable(part) for part in parts)


def _as_json(message: KafkaMessage) -> str:
    return json.dumps(
        {
            "env_id": message.env_id,
            "lease": message.lease,
            "epoch": message.epoch,
            "step": message.step,
            "sequence": message.sequence,
            "kind": message.message_type.value,
            "custom_topic": message.custom_topic,
            "sender": message.sender_id,
            "recipient": message.recipient_id,
            "timestamp": message.timestamp,
            "payload": _plain(message.payload, whole=True),
        }
    )


def _printable(text: str) -> str:
    """Escape control characters in untrusted text, so that it cannot move the cursor or end the line."""
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape", "surrogatepass").decode()
        for letter in text
    )


def _plain(value: Any, *, whole: bool) -> Any:
    """Convert a tree to JSON values: bytes to base64, non-finite numbers to text.

    Args:
        whole: False to replace large arrays by their dtype and shape, and bytes by their length.
    """
    if isinstance(value, np.ndarray):
        if not whole and value.size > _MAX_NUMBERS:
            return f"{value.dtype}{list(value.shape)}"
        return _plain(value.tolist(), whole=whole)
    if isinstance(value, np.generic):
        return _plain(value.item(), whole=whole)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode() if whole else f"{len(value)} bytes"
    if isinstance(value, dict):
        return {str(key): _plain(item, whole=whole) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict(), whole=whole)
    if isinstance(value, (list, tuple)):
        return [_plain(item, whole=whole) for item in value]
    return value


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read settings from a file with lines NAME=VALUE, the format of librdkafka's own tools.

    Empty lines and lines that begin with # are ignored.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if other users can read or change it, or a line is malformed. Messages contain no values,
            which may be passwords.
    """
    # Checks the open file rather than the path, which could lead to another file a moment later.
    with open(path, encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & (stat.S_IRWXO | stat.S_IWGRP):
            raise ValueError(
                f"{path}: other users can read or change these settings (mode {mode:04o}); "
                f"run: chmod go-rwx {path}"
            )
        lines = file.read().splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"{path}: line {number}: expected NAME=VALUE")
        if name.strip() in found:
            raise ValueError(f"{path}: line {number}: {name.strip()} is set twice")
        found[name.strip()] = value.strip()
    return found
