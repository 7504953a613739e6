"""Named random seeds, all derived from one number.

Each name gets a child of one SeedSequence with a spawn key made from the name. A seed depends only on its
name, not on the order in which the parts of a program request theirs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

_MAX_NAMED = 1_000_000  # seeds of a command line


class Seeds:
    """Independent seeds by name, all derived from one number.

    Args:
        entropy: the run's seed. None draws one from the operating system; read it from the attribute
            `entropy` to repeat the run.

    Raises:
        TypeError, ValueError: if `entropy` is not a non-negative int.

    Example:
        >>> seeds = Seeds(0)
        >>> generator = seeds.generator("agent")
        >>> seeds.generator("agent")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: seed 'agent' was requested twice; every part needs a different name, ...
    """

    def __init__(self, entropy: int | None = None) -> None:
        if entropy is None:
            entropy = int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
        # bool is a subclass of int, so True would pass for 1.
        if isinstance(entropy, bool) or not isinstance(entropy, (int, np.integer)):
            raise TypeError(f"Seeds: entropy must be an int or None, got {entropy!r}")
        if entropy < 0:
            raise ValueError(f"Seeds: entropy must not be negative, got {entropy}")
        self.entropy = int(entropy)
        self._given: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"Seeds({self.entropy})"

    def sequence(self, name: str) -> np.random.SeedSequence:
        """Return the seed sequence of `name`. Raises ValueError on a second request."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"Seeds: a name must be a non-empty string, got {name!r}")
        if name in self._given:
            raise ValueError(
                f"seed {name!r} was requested twice; every part needs a different name, and building parts "
                f"again needs a new {self!r}"
            )
        # Not Python's `hash`, which differs from process to process.
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
        # 128 bits, so that no two names share a key; in words of 32 bits, which spawn keys are made of.
        # "little" is given, so that seeds are the same on all machines.
        key = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
        sequence = np.random.SeedSequence(self.entropy, spawn_key=key)
        self._given[name] = int(sequence.generate_state(1)[0])
        return sequence

    def integer(self, name: str) -> int:
        """Return a seed in [0, 2**32) for libraries that take an int."""
        return int(self.sequence(name).generate_state(1)[0])

    def generator(self, name: str) -> np.random.Generator:
        """Return a numpy generator seeded by `name`."""
        return np.random.default_rng(self.sequence(name))

    def spawn(self, name: str, n: int) -> list[np.random.SeedSequence]:
        """Return `n` independent sequences, for example one per environment.

        Raises:
            ValueError: if `n` is not a nonnegative int, or `name` was already requested.
            TypeError: if `name` is not a non-empty string.
        """
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ValueError(f"Seeds: {name!r}: n: expected an int of at least 0, got {n!r}")
        return self.sequence(name).spawn(int(n))

    def state(self) -> dict[str, Any]:
        """Return the entropy, and the first word of each requested seed."""
        return {"entropy": self.entropy, "given": dict(self._given)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Seeds:
        """Return new Seeds with the entropy of `state`; every name may be requested again."""
        try:
            return cls(state["entropy"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"Seeds: not a saved state: {state!r}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `state()` as JSON."""
        Path(path).write_text(json.dumps(self.state(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Seeds:
        """Read a file written by `save`. Raises ValueError for any other file."""
        text = Path(path).read_text()
        try:
            state: Any = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"Seeds: {path} is not JSON: {error}") from error
        return cls.from_state(state)


def seeds_named(text: str) -> list[int]:
    """Parse seeds such as "0-99", "3,5,8-10" or "0:100"; a colon excludes the end, as in Python.

    Raises:
        ValueError: for another format, or more than a million seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:([-:])(\d+))?", part.strip())
        first = int(match[1]) if match else 0
        end = (int(match[3]) + (match[2] == "-") if match[2] else first + 1) if match else 0
        if first >= end:
            raise ValueError(f"expected seeds such as 0-99, 0:100 or 3,5,8-10, got {text!r}")
        if len(seeds) + end - first > _MAX_NAMED:  # before allocating the list
            raise ValueError(f"expected at most {_MAX_NAMED:,} seeds, got {text!r}")
        seeds += range(first, end)
    return seeds
