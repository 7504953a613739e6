"""Files that are appended to line by line, and files that are replaced as a whole.

A file that a writer appends to is opened for each row and closed again. This costs some microseconds where
rows are seconds apart, and in return nothing is lost in a buffer, no descriptor is held, and a full disk or a
removed folder shows at once: writing on into a deleted file would succeed and leave nothing.

Whatever is appended is there whole or not at all, as long as the process lives; of a process that was
killed half a line may stay, which the next line replaces. A power cut may take what was not synced.
Of a file that is replaced, a reader finds the old one or the new one, never half.
"""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_PROBE_NBYTES = 4096  # a block: less may fit into what the last block of a file has left
_BLOCK_NBYTES = 4096  # that are looked through for a line break at a time


def prepare_file(owner: str, folder: str | os.PathLike[str], name: str) -> Path:
    """Create `folder` if it is missing, check that `name` can be written there, return its path.

    Raises:
        OSError: if the folder or the file cannot be written, or the disk is full.
    """
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
        # Opening takes no space, so a block is written: into a file without a name, which cannot stay.
        with tempfile.TemporaryFile(dir=path.parent, buffering=0) as probe:
            _write_all(probe, bytes(_PROBE_NBYTES))
    except OSError as error:
        raise OSError(
            error.errno,
            f"{owner}: expected a writable folder: {error.strerror}",
            str(path),
        ) from error
    return path


def append(path: Path, content: bytes, header: bytes = b"") -> None:
    """Append `content`, all of it or nothing; `header` goes before it if the file is empty.

    Raises:
        OSError: if it cannot be written; the file is then as it was.
    """
    with path.open("a+b", buffering=0) as file:
        # Looked up before writing, to cut off there what a full disk takes in part.
        end = file.seek(0, os.SEEK_END)
        append_all(file, end, content if end else header + content)


def append_lines(path: Path, lines: bytes, header: bytes = b"") -> None:
    """Append whole lines as `append` does; half a line that a kill left at the end is dropped."""
    with path.open("a+b", buffering=0) as file:
        end = drop_half_line(file)
        append_all(file, end, lines if end else header + lines)


def sync_file(path: Path) -> None:
    """Make what was appended survive a power cut; do nothing if there is no file.

    Raises:
        OSError: if it cannot be written to the disk.
    """
    try:
        file = path.open("rb+", buffering=0)
    except FileNotFoundError:
        return
    with file:
        os.fsync(file.fileno())


def whole_lines(content: bytes) -> bytes:
    """Return the content without what follows the last line break."""
    return content[: content.rfind(b"\n") + 1]


def read_lines(path: Path) -> bytes:
    """Return the whole lines of a file; nothing if it does not exist."""
    try:
        return whole_lines(path.read_bytes())
    except FileNotFoundError:
        return b""


def drop_half_line(file: io.FileIO) -> int:
    """Cut off what follows the last line break, and return where the file ends then."""
    size = file.seek(0, os.SEEK_END)
    end = _after_line_break(file, size)
    if end < size:
        file.truncate(end)
    return end


def last_line(file: io.FileIO) -> bytes:
    """Return the last whole line of a file, with its line break; nothing if it has none."""
    end = _after_line_break(file, file.seek(0, os.SEEK_END))
    start = _after_line_break(file, end - 1)
    file.seek(start)
    return file.read(end - start)


def _after_line_break(file: io.FileIO, end: int) -> int:
    """Return the place after the last line break before `end`, 0 if there is none."""
    # From the end, as the file may be large and a line is short.
    while end > 0:
        start = max(0, end - _BLOCK_NBYTES)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def append_all(file: io.FileIO, end: int, content: bytes) -> None:
    """Append to a file that ends at `end`: all of the content, or nothing if this raises an OSError."""
    try:
        _write_all(file, content)
    except BaseException:
        with contextlib.suppress(OSError):  # a device has no length
            # Ctrl-C may come when all is there, and a reader has seen it.
            if file.seek(0, os.SEEK_END) < end + len(content):
                file.truncate(end)
        raise


def _write_all(file: io.RawIOBase, content: bytes) -> None:
    """Write everything: on a nearly full disk a part is taken first, and the rest is refused."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) or 0 :]


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
