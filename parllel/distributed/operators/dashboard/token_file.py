"""The token of a board, which stays the same as long as its folder does."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from parllel.distributed.web.read_token import read_token

_NAME = "token"


def token_of(folder: str | os.PathLike[str]) -> str:
    """Return the token in a board's folder; make one, readable by this user alone, if there is none.

    Raises:
        OSError: if it cannot be read or written.
        ValueError: if other users can read it, or it is no token.
    """
    path = Path(folder) / _NAME
    try:
        # With its mode from the beginning, and only if there is none.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
    token = read_token(path)
    assert token is not None
    return token
