"""Parsing of the commands' arguments, and output of their results."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from parllel.distributed.web.token_file import read_token
from parllel.distributed.wire.json_text import json_bytes, parse_json
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.wire_error import WireError
from parllel.runs.trust import check_source

# For files named by the user, which may be large: replays of long episodes.
_FILE_LIMITS = Limits(nbytes=1 << 30, items=100_000_000)
_JSON_STARTS = tuple('{["-0123456789')
_WORDS = ("null", "true", "false")
_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no", "none", "")


def json_value(text: str | None, flag: str, kind: type | None = None) -> Any:
    """Return the value of a flag that takes JSON, or None without the flag.

    Raises:
        ValueError: for invalid JSON, or a type other than `kind`. Names the flag.
    """
    if text is None:
        return None
    try:
        value = parse_json(text.encode())
    except (WireError, UnicodeEncodeError) as error:
        raise ValueError(f"{flag}: expected JSON, got {text[:100]!r}: {error}") from None
    if kind is not None and not isinstance(value, kind):
        expected = "an object" if kind is dict else "an array"
        raise ValueError(f"{flag}: expected {expected} in JSON, got {text[:100]}")
    return value


def agent_spec(text: str) -> Any:
    """Return an agent's specification: JSON if the text looks like it, otherwise the text.

    A file whose name looks like JSON can be written as `./3`.
    """
    if text in _WORDS or text.startswith(_JSON_STARTS):
        return json_value(text, "--agents")
    return text


def flag_value(text: str, flag: str) -> bool:
    """Parse the value of a boolean flag.

    Raises:
        ValueError: for any other word.
    """
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{flag}: expected true or false, got {text!r}")


def with_token(raw: Any, token: str | None) -> Any:
    """Add a token as password to the URL of a specification, unless it has a user or password already."""
    if token is None:
        return raw
    if isinstance(raw, str) and raw.startswith(("http://", "https://")):
        parts = urlsplit(raw)
        if "@" in parts.netloc:
            return raw
        return urlunsplit(parts._replace(netloc=f":{quote(token, safe='')}@{parts.netloc}"))
    if isinstance(raw, dict):
        return {
            key: with_token(value, token) if key in ("url", "proto_config") else value
            for key, value in raw.items()
        }
    return raw


def agents_of(arguments: argparse.Namespace) -> list[Any]:
    """Return the specifications of --agents. URLs get the token from a file or the environment.

    Raises:
        ValueError: for invalid JSON, or a run whose script must not be executed.
    """
    token = read_token(arguments.token_file)
    specs = [agent_spec(text) for text in arguments.agents]
    for spec in specs:
        check_agent(spec, trusted=arguments.trust)
    return [with_token(spec, token) for spec in specs]


def agent_variables(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the names given by --agent-env, environment variables to pass to agents.

    Raises:
        ValueError: for a variable that is not set.
    """
    for name in arguments.agent_env:
        if name not in os.environ and not any(letter in name for letter in "*?["):
            raise ValueError(f"--agent-env {name}: there is no such environment variable")
    return tuple(arguments.agent_env)


def check_agent(spec: Any, *, trusted: bool) -> None:
    """Refuse the folder of a run whose script must not be executed, like `check_source`."""
    # Without a run.json nothing is executed, and building the agent reports what is wrong.
    if isinstance(spec, str) and os.path.isfile(os.path.join(spec, "run.json")):
        check_source(spec, trusted=trusted)


def read_json_file(path: str, flag: str) -> Any:
    """Return the content of a JSON file.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if the file is not JSON.
    """
    try:
        return parse_json(Path(path).read_bytes(), _FILE_LIMITS)
    except WireError as error:
        raise ValueError(f"{flag} {path}: expected JSON: {error}") from None


def write_result(value: Any, path: str | None) -> None:
    """Write JSON values or text, with a final newline, to a file or stdout."""
    text = value if isinstance(value, str) else json_bytes(value).decode()
    if not text.endswith("\n"):
        text += "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
