"""Build functions of the user's script, on their way to actors."""

from __future__ import annotations

import os
import sys
from typing import Any

import cloudpickle


def pack_build(build: Any) -> bytes:
    """Pickle a function, or a tuple that holds one, by the installed cloudpickle, with this `sys.path`.

    Ray's bundled copy of cloudpickle would pickle the functions of a resumed script by name, and the actors
    could not import them.
    """
    # Absolute, because "" means the current folder, which differs in the actors.
    path = [os.path.abspath(folder) for folder in sys.path]
    packed: bytes = cloudpickle.dumps((path, cloudpickle.dumps(build)))
    return packed


def unpack_build(packed: bytes) -> Any:
    """Extend `sys.path` by that of the process that packed, and return what was packed."""
    # In two steps: the function's modules can be imported only once the path is extended.
    path, build = cloudpickle.loads(packed)
    sys.path += [folder for folder in path if folder not in sys.path]
    return cloudpickle.loads(build)
