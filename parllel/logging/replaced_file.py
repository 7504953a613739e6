"""Files that are written anew: a reader finds the old one or the new one, never half."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path`; when the block has ended well, it is synced and takes the place of `path`.

    A process that is killed within leaves `NAME.xxxxxxxx.tmp`.

    Raises:
        OSError: if it cannot be written; names the file. The old one is still there, as it is whenever the
            block raises.
    """
    # Not tempfile's: its files are readable by their owner alone, whatever the umask says.
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with aside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        if isinstance(error, OSError) and error.errno is not None:
            named = error.filename is not None and str(error.filename) != str(aside)
            error.filename = error.filename if named else str(path)  # a full disk names none
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where folders can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
