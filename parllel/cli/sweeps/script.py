"""Build function and config of a training script."""

from __future__ import annotations

import dataclasses
import inspect
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parllel.runners.runs import Build
from parllel.runs.reference import import_script

_EXPECTED = "a script for a sweep has a function `build(config: Config, stack, folder, console)`"


@dataclass(frozen=True)
class Script:
    """A training script: its file, its build function, and its config with all defaults."""

    file: Path
    build: Build
    config: Any


def load_script(file: str) -> Script:
    """Import a script and find `build` and the dataclass of its first parameter.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it cannot be imported, or has no such function or dataclass. Says what is expected.
    """
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"{file}: there is no such script")
    if path.suffix != ".py":
        raise ValueError(f"{file}: expected a Python script, whose name ends in .py")
    module = import_script(path)
    build = getattr(module, "build", None)
    if not callable(build):
        raise ValueError(f"{file}: there is no function `build`; {_EXPECTED}")
    first = next(iter(inspect.signature(build).parameters.values()), None)
    kind: Any = None if first is None else first.annotation
    if isinstance(kind, str):  # because of `from __future__ import annotations`
        try:
            kind = operator.attrgetter(kind)(module)
        except AttributeError:
            kind = None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        given = "none" if first is None or first.annotation is first.empty else str(first)
        raise ValueError(
            f"{file}: the config of `build` needs an annotation that names a dataclass, got {given}; "
            f"{_EXPECTED}"
        )
    try:
        return Script(path.resolve(), build, kind())
    except Exception as error:
        raise ValueError(
            f"{file}: {kind.__name__} cannot be made without arguments: {error}; give its fields defaults"
        ) from error
