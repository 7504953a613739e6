"""Checks of a client's options that need no client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from parllel.distributed.operators.llm.provider import provider_named


class _Number(NamedTuple):
    expected: str
    least: float
    is_whole: bool = True
    or_none: bool = False


_NUMBERS = {
    "timeout_s": _Number("seconds above 0", math.ulp(0.0), is_whole=False),
    "retries": _Number("a whole number of at least 0", 0),
    "token_budget": _Number("None or a whole number of at least 1", 1, or_none=True),
    "max_tokens": _Number("None or a whole number of at least 1", 1, or_none=True),
    "temperature": _Number("None or a number of at least 0", 0, is_whole=False, or_none=True),
}


def check_options(given: Mapping[str, Any]) -> None:
    """Raise ValueError if one of these options of a client is invalid. Other names are ignored."""
    model = given.get("model")
    if not isinstance(model, str) or not model:
        raise ValueError(f"model: expected the name of a model, got {model!r}")
    if "provider" in given:
        protocol = provider_named(given["provider"]).protocol
        if protocol.needs_limit and given.get("max_tokens", 1) is None:
            raise ValueError(f"max_tokens: {given['provider']} needs a number, got None")
    if given.get("base_url") is not None:
        checked_url(given["base_url"])
    for name, number in _NUMBERS.items():
        if name in given:
            check_number(name, given[name], *number)


def check_number(
    name: str,
    value: Any,
    expected: str,
    least: float,
    is_whole: bool = True,
    or_none: bool = False,
) -> None:
    """Raise ValueError unless `value` is a finite number and at least `least`."""
    if value is None and or_none:
        return
    is_number = isinstance(value, int if is_whole else Real) and not isinstance(value, bool)
    if not is_number or not least <= value < math.inf:
        raise ValueError(f"{name}: expected {expected}, got {value!r}")


def checked_url(url: object) -> str:
    """Return a base URL without its trailing slash.

    Raises:
        ValueError: if it is not a valid base URL. The message never shows a password.
    """
    expected = (
        "base_url: expected http://host:port/path or https://, without password, query and fragment"
    )
    if not isinstance(url, str):
        raise ValueError(f"{expected}, got {url!r}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(f"{expected}; got a malformed URL") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            f"{expected}; put a key into the environment variable named by api_key_env"
        )
    printable = all(" " < letter < "\x7f" for letter in url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not printable:
        raise ValueError(f"{expected}, got {url!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"{expected}, got a query or a fragment")
    return url.rstrip("/")
