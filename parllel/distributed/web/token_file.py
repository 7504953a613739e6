"""Server tokens from a file or the environment, where other users of the machine cannot read them."""

from __future__ import annotations

import os
import stat

_SHORTEST, _LONGEST = 16, 1024  # characters
VARIABLE = "PARLLEL_TOKEN"


def read_token(path: str | os.PathLike[str] | None = None, variable: str = VARIABLE) -> str | None:
    """Read a token from the first line of a file or, without a path, from an environment variable.

    path: a file, or a pipe such as a shell's `<(...)`. If None, the variable is read and removed from this
        process's environment, so that child processes do not inherit it.

    Returns: None if neither is given.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if other users can read or change the file, or the token is unusable. Messages never
            contain the token.
    """
    if path is None:
        # Children that were started earlier keep it, and /proc/PID/environ shows the variables of
        # this process's start to its own user.
        token = os.environ.pop(variable, None)
        return None if token is None else check_token(token.strip(), f"${variable}")
    # Checked through the open descriptor: the path could point to another file a moment later.
    # Opening a pipe blocks until its writer has opened it too, and reading until it has written a
    # line.
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
            raise ValueError(f"{path}: expected a file with a token in its first line")
        _check_mode(path, stat.S_IMODE(status.st_mode))
        # Bounded, as a pipe may never end its line.
        line = file.readline(_LONGEST + 2).strip()
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected a token of visible ASCII characters") from None
    return check_token(text, str(path))


def check_token(token: str, source: str) -> str:
    """Check that a token can be sent in a header and is hard to guess. Returns the token.

    Raises:
        TypeError, ValueError: for an unusable token. The message names the source, never the token.
    """
    if not isinstance(token, str):
        raise TypeError(f"{source}: expected a token as a str, got {type(token).__name__}")
    if not _SHORTEST <= len(token) <= _LONGEST:
        raise ValueError(
            f"{source}: expected a token of {_SHORTEST} to {_LONGEST:,} characters, got {len(token):,}. "
            "Create one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    if not all("!" <= sign <= "~" for sign in token):
        raise ValueError(f"{source}: expected a token of visible ASCII characters")
    return token


def _check_mode(path: str | os.PathLike[str], mode: int) -> None:
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ValueError(
            f"{path}: other users can read or change this token (mode {mode:04o}). "
            f"Run: chmod go-rwx {path}"
        )
