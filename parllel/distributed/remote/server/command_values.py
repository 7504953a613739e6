"""What the commands read from their arguments, and where their results go."""

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

# Files that the user names may be of any size: replays of long episodes are.
_FILE_LIMITS = Limits(nbytes=1 << 30, items=100_000_000)
_JSON_STARTS = tuple('{["-0123456789')
_WORDS = ("null", "true", "false")
_TRUE, _FALSE = ("1", "true", "yes"), ("0", "false", "no", "none", "")


def json_value(text: str | None, flag: str, kind: type | None = None) -> Any:
    """Return the value of a flag that takes JSON, None without it.

    Raises:
        ValueError: naming the flag, if it is no JSON or not of a kind.
    """
    if text is None:
        return None
    try:
        value = parse_json(text.encode())
    except (WireError, UnicodeEncodeError) as error:
        raise ValueError(f"{flag}: expected JSON, got {text[:100]!r}: {error}") from None
    if kind is not None and not isinstance(value, kind):
        wanted = "an object" if kind is dict else "an array"
        raise ValueError(f"{flag}: expected {wanted} in JSON, got {text[:100]}")
    return value


def agent_spec(text: str) -> Any:
    """Return the specification of an agent: JSON where it looks like it, else the text itself.

    A file of such a name is `./3`.
    """
    if text in _WORDS or text.startswith(_JSON_STARTS):
        return json_value(text, "--agents")
    return text


def flag_value(text: str, flag: str) -> bool:
    """Return what a flag of true or false says.

    Raises:
        ValueError: for another word.
    """
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"{flag}: expected true or false, got {text!r}")


def with_token(raw: Any, token: str | None) -> Any:
    """Return a specification whose URL, if it has one and no user or password, has a token for password."""
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
    """Return what --agents names; URLs have the token of a file or the environment.

    Raises:
        ValueError: for JSON that is none, and for a run whose script is not to be executed.
    """
    token = read_token(arguments.token_file)
    specs = [agent_spec(text) for text in arguments.agents]
    for spec in specs:
        check_agent(spec, trusted=arguments.trust)
    return [with_token(spec, token) for spec in specs]


def agent_variables(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the environment variables that agents are to have, of --agent-env.

    Raises:
        ValueError: for one that is not set.
    """
    for name in arguments.agent_env:
        if name not in os.environ and not any(letter in name for letter in "*?["):
            raise ValueError(f"--agent-env {name}: there is no such environment variable")
    return tuple(arguments.agent_env)


def check_agent(spec: Any, *, trusted: bool) -> None:
    """Refuse the folder of a run whose script is not to be executed, as `check_source` does."""
    # Without the file there is nothing to execute, and what takes the specification says what it is.
    if isinstance(spec, str) and os.path.isfile(os.path.join(spec, "run.json")):
        check_source(spec, trusted=trusted)


def read_json_file(path: str, flag: str) -> Any:
    """Return the value of a JSON file.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is not JSON.
    """
    try:
        return parse_json(Path(path).read_bytes(), _FILE_LIMITS)
    except WireError as error:
        raise ValueError(f"{flag} {path}: expected JSON: {error}") from None


def write_result(value: Any, path: str | None) -> None:
    """Write JSON values, or text, and a line end to a file or stdout."""
    text = value if isinstance(value, str) else json_bytes(value).decode()
    if not text.endswith("\n"):
        text += "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
