"""States on disk: arrays and JSON values in one zip file, written whole or not at all."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from parllel.types import State

_ARRAY = "array:"  # marks a string of the structure as the name of an array
_TEXT = "text:"  # and one as itself


def save_state(path: str | os.PathLike[str], state: State) -> None:
    """Write `state` to `path`, so that a reader finds the old file or the new one, never half.

    The file is a zip of `structure.json` and one .npy per array; nothing in it is pickled.

    Raises:
        TypeError: if the state holds anything but dicts, lists, numbers, strings, None and arrays.
        OSError: if it cannot be written; the old file is still there.
    """
    path = Path(path)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    structure = _describe(state, arrays, "state")
    # Not tempfile's: its files are readable by their owner alone, whatever the umask says.
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with aside.open("xb") as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("structure.json", json.dumps(structure))
                for name, array in arrays.items():
                    content = io.BytesIO()
                    np.save(content, array, allow_pickle=False)
                    archive.writestr(f"{name}.npy", content.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
    _sync_folder(path.parent)


def load_state(path: str | os.PathLike[str]) -> State:
    """Return what `save_state` wrote.

    Raises:
        ValueError: if the file is damaged or something else; the message names it.
        OSError: if it cannot be read.
    """
    with open(path, "rb") as file:
        try:
            return _read(file)
        except Exception as error:  # zipfile raises whatever the damaged bytes seem to ask for
            raise ValueError(f"{path}: not a saved state, or damaged: {error}") from error


def _read(file: BinaryIO) -> State:
    with zipfile.ZipFile(file) as archive:
        structure = json.loads(archive.read("structure.json"))
        if not isinstance(structure, dict):
            raise ValueError(f"expected a dict, got {structure!r}")
        arrays = {
            name[: -len(".npy")]: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
            if name.endswith(".npy")
        }
    state: State = _rebuild(structure, arrays)
    return state


def _describe(value: Any, arrays: dict[str, np.ndarray[Any, Any]], at: str) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(f"{at}: arrays of objects cannot be saved")
        name = f"a{len(arrays)}"
        arrays[name] = value
        return _ARRAY + name
    if isinstance(value, np.generic):
        return _describe(np.asarray(value), arrays, at)
    if isinstance(value, str):
        return _TEXT + value
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"{at}: keys must be strings, got {list(value)}")
        return {key: _describe(part, arrays, f"{at}.{key}") for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_describe(part, arrays, f"{at}[{i}]") for i, part in enumerate(value)]
    raise TypeError(f"{at}: expected arrays and JSON values, got {type(value).__name__}")


def _rebuild(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, str):
        if value.startswith(_TEXT):
            return value[len(_TEXT) :]
        return arrays[value[len(_ARRAY) :]]
    if isinstance(value, dict):
        return {key: _rebuild(part, arrays) for key, part in value.items()}
    if isinstance(value, list):
        return [_rebuild(part, arrays) for part in value]
    return value


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where folders can be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
