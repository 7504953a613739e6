"""Settings of librdkafka in a file, where other users of the machine cannot read passwords."""

from __future__ import annotations

import os
import stat


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the settings of a file with a line NAME=VALUE for each, as librdkafka's own tools read them.

    Empty lines, and those that begin with #, say nothing.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if other users can read or change it, or a line is none. No message has a value.
    """
    # The descriptor is asked rather than the path, which could lead elsewhere a moment later.
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
            raise ValueError(f"{path}: line {number}: {name.strip()} is there twice")
        found[name.strip()] = value.strip()
    return found
