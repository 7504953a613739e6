"""The exception for values that cannot be sent or read."""

from __future__ import annotations

import reprlib
from typing import Any

from parllel.errors import ParllelError

_LONGEST = 80  # bits of an int that is shown, and characters of a key in a path


class WireError(ParllelError, ValueError):
    """A value cannot be sent, or a received message is invalid.

    Attributes:
        path: path of the invalid part as an expression, such as `observation.position[3]`. "" is
            the root.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path = ""

    def under(self, key: Any) -> WireError:
        """Prepend a key or an index to the path, and return this error."""
        step = key if isinstance(key, str) and key.isidentifier() else f"[{shown(key)}]"
        dot = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{step[:_LONGEST]}{dot}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.args[0]}" if self.path else str(self.args[0])


def shown(value: Any) -> str:
    """Return a shortened repr for a message, since received values may be of any length."""
    if isinstance(value, int) and value.bit_length() > _LONGEST:
        return f"an int of {value.bit_length()} bits"  # Python refuses to print very long ints
    return reprlib.repr(value)
