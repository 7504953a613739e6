"""Files that writers append to.

A file is opened for each row and closed again. This costs some microseconds where rows are seconds
apart, and in return nothing is lost in a buffer, no descriptor is held, and a full disk or a removed
folder shows at once: writing on into a deleted file would succeed and leave nothing.
"""

from __future__ import annotations

import os
from pathlib import Path


def prepare_file(owner: str, folder: str | os.PathLike[str], name: str) -> Path:
    """Create `folder` if it is missing, check that `name` can be written there, return its path.

    Raises:
        OSError: if the folder or the file cannot be written.
    """
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise OSError(
            error.errno,
            f"{owner}: expected a folder that can be written, got {error.strerror}",
            str(path),
        ) from error
    return path
