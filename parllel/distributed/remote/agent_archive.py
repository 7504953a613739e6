"""Agents in archives: zip, tar or tar.gz files with a main.py at the top level."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from parllel.types import Closeable

MAIN = "main.py"
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
MAX_BYTES = 1 << 30  # of all extracted files together
MAX_FILES = 10_000
_MAX_HEADER = 1 << 20  # bytes that tarfile may read at once
_CHUNK = 1 << 16


class ExtractedArchive(Closeable):
    """Files of an archive, extracted to a temporary folder.

    Extracts regular files and folders only, and never outside the folder.

    Args:
        path: path of the archive.
        title: name of the archive in messages.

    Attributes:
        main: path of the extracted main.py.

    Raises:
        ValueError: for a damaged archive; one with links, devices, duplicate paths or paths that lead out of
            it; one without a main.py at the top level; and one of more than 10,000 files or 1 GiB.
        OSError: if the archive cannot be read or a file cannot be written.
    """

    def __init__(self, path: str, title: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="parllel-agent-")
        self.main = os.path.join(self._folder.name, MAIN)
        try:
            self._extract(path)
            if not os.path.isfile(self.main):
                raise ValueError(f"expected {MAIN} at the top level, got {self._top()}")
        except (ValueError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
            self.close()
            raise ValueError(f"{title}: {error}") from error
        # RuntimeError: encrypted archives, and compression methods that zipfile does not support.
        except (zlib.error, RuntimeError) as error:
            self.close()
            raise ValueError(f"{title}: cannot be extracted: {error}") from error
        except BaseException:
            self.close()
            raise

    def _extract(self, path: str) -> None:
        left = MAX_BYTES
        members = _zip_members(path) if zipfile.is_zipfile(path) else _tar_members(path)
        for number, (name, mode, source) in enumerate(members):
            if number >= MAX_FILES:
                raise ValueError(f"expected at most {MAX_FILES:,} files")
            target = self._target(name)
            if source is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                raise ValueError(f"contains {name[:200]!r} twice")
            with source, target.open("xb") as file:
                # Counted while extracting, because the sizes in the archive's headers may be forged.
                while chunk := source.read(_CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        raise ValueError(f"expected at most {MAX_BYTES:,} bytes when extracted")
                    file.write(chunk)
            target.chmod(0o700 if mode & 0o100 else 0o600)

    def _target(self, name: str) -> Path:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name:
            raise ValueError(f"contains a path that leads out of the archive: {name[:200]!r}")
        return Path(self._folder.name, path)

    def _top(self) -> str:
        return ", ".join(sorted(os.listdir(self._folder.name))[:10]) or "nothing"

    def close(self) -> None:
        """Delete the extracted files. Idempotent."""
        self._folder.cleanup()


def is_archive(path: str) -> bool:
    """Return whether a path has the suffix of an archive."""
    return path.lower().endswith(SUFFIXES)


_Member = tuple[str, int, "IO[bytes] | None"]  # path, permissions, content; None for a folder


def _zip_members(path: str) -> Iterator[_Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                yield info.filename, mode, None
            elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise ValueError(f"expected regular files, got {info.filename[:200]!r}")
            else:
                yield info.filename, mode, archive.open(info)


def _tar_members(path: str) -> Iterator[_Member]:
    with open(path, "rb") as plain:
        zipped = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        source: Any = gzip.GzipFile(fileobj=plain) if zipped else plain
        bounded: Any = _Bounded(source)
        with tarfile.open(fileobj=bounded, mode="r:") as archive:
            for info in archive:
                if info.isdir():
                    yield info.name, info.mode, None
                elif not info.isreg() or info.issparse():
                    raise ValueError(f"expected regular files, got {info.name[:200]!r}")
                else:
                    yield info.name, info.mode, archive.extractfile(info)


class _Bounded:
    """File that refuses large reads, which forged headers of a tar file can request."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise ValueError(f"contains a header of more than {_MAX_HEADER:,} bytes")
        data: bytes = self._file.read(size)
        return data
