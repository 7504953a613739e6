"""Take a token from a file or the environment, where other users of the machine cannot read it."""

from __future__ import annotations

import os
import stat

_SHORTEST, _LONGEST = 16, 1024
VARIABLE = "PARLLEL_TOKEN"


def read_token(path: str | os.PathLike[str] | None = None, variable: str = VARIABLE) -> str | None:
    """Return the first line of a file or, without one, the value of an environment variable.

    path: a file, or a pipe such as a shell's `<(...)`. None looks at the variable, which is then removed from
        the environment of this process, so that the programs it starts do not have it.

    Returns: None if neither is given.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if other users can read or change it, or it has no usable token. No message has the token.
    """
    if path is None:
        token = os.environ.pop(variable, None)
        return None if token is None else check_token(token.strip(), f"${variable}")
    # The descriptor is asked rather than the path, which could lead elsewhere a moment later.
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
            raise ValueError(f"{path}: expected a file with a token in its first line")
        _check_mode(path, stat.S_IMODE(status.st_mode))
        line = file.readline(_LONGEST + 2).strip()
    try:
        text = line.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected a token of visible ASCII characters") from None
    return check_token(text, str(path))


def check_token(token: str, source: str) -> str:
    """Return a token that can be sent in a header and not be guessed.

    Raises:
        ValueError: names the source, and never the token.
    """
    if not isinstance(token, str):
        raise TypeError(f"{source}: expected a token as a str, got {type(token).__name__}")
    if not _SHORTEST <= len(token) <= _LONGEST:
        raise ValueError(
            f"{source}: expected a token of {_SHORTEST} to {_LONGEST:,} characters, got {len(token):,}; "
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        )
    if not all("!" <= sign <= "~" for sign in token):
        raise ValueError(f"{source}: expected a token of visible ASCII characters")
    return token


def _check_mode(path: str | os.PathLike[str], mode: int) -> None:
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ValueError(
            f"{path}: other users can read or change this token (mode {mode:04o}); "
            f"run: chmod go-rwx {path}"
        )
