"""References to functions and classes by name, to import them in a later process."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import operator
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import cloudpickle

from parllel.errors import WrongStateError

Imported = TypeVar("Imported")

_PREFIX = "parllel_run_"  # of the modules that scripts become here
_importing: list[str] = []  # what is imported here at this moment, the innermost last


@dataclass(frozen=True)
class Reference:
    """The import location of a function or class.

    Attributes:
        name: location in the form "module:name"; the module of a script is `__main__`.
        file: file of the module, or None.
        problem: why the function or class cannot be imported again, or None.
    """

    name: str
    file: str | None = None
    problem: str | None = None

    def find(self) -> Any:
        """Import the function or class. A script is imported under a unique module name.

        Raises:
            ValueError: if it cannot be found, or its file cannot be imported. The message says why.
            FileNotFoundError: if its file no longer exists.
        """
        if self.problem is not None:
            raise ValueError(f"{self.name} cannot be found again: {self.problem}")
        module_name, _, name = self.name.partition(":")
        module = _module(module_name, self.file)
        try:
            return operator.attrgetter(name)(module)
        except AttributeError:
            where = self.file or module_name
            raise ValueError(f"{where}: there is no {name!r} any more") from None


def reference_to(thing: Any) -> Reference:
    """Return the reference to a function or class. Its `problem` says why it cannot be imported again."""
    module_name, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module_name, str) or not isinstance(name, str):
        kind = type(thing).__name__
        return Reference(repr(thing), None, f"it is a {kind}, and no function or class of a module")
    module = sys.modules.get(module_name)
    file = getattr(module, "__file__", None)
    file = None if file is None else str(Path(file).resolve())
    problem = _problem(thing, module, name, file)
    return Reference(f"{_importable_name(module_name, module)}:{name}", file, problem)


def _problem(thing: Any, module: ModuleType | None, name: str, file: str | None) -> str | None:
    if "<lambda>" in name:
        return "it is a lambda"
    if "<locals>" in name:
        return "it stands inside of a function"
    if module is None:
        return "its module is not imported"
    try:
        found = operator.attrgetter(name)(module)
    except AttributeError:
        found = None
    # By identity: a decorator, say, may have left something else under the name.
    if found is not thing:
        return "something else has its name in its module"
    if module.__name__ == "__main__" and (file is None or not Path(file).is_file()):
        return "it was entered by hand, and stands in no file"
    return None


def _importable_name(name: str, module: ModuleType | None) -> str:
    """Return the name of a module for another process."""
    if name.startswith(_PREFIX):
        return "__main__"
    spec = getattr(module, "__spec__", None)
    # `python -m package.module` runs a module that has a name to be imported by.
    return spec.name if name == "__main__" and spec is not None else name


def _module(name: str, file: str | None) -> ModuleType:
    for known in (sys.modules.get(name), sys.modules.get("__main__")):
        if known is not None and _is_of(getattr(known, "__file__", None), file):
            return known
    if name != "__main__":
        root = None if file is None else _root_of(name, Path(file))
        if root is not None and str(root) not in sys.path:
            sys.path.append(str(root))  # it was there when the run began
        # To look for a submodule imports its package.
        origin = _import(name, lambda: _origin(name))
        # The name alone is not enough: every second script is called train.
        if file is None or _is_of(origin, file):
            return _import(name, lambda: importlib.import_module(name))
    if file is None or not Path(file).is_file():
        raise FileNotFoundError(
            f"{file or name}: the script or module that built this run no longer exists"
        )
    return _import(file, lambda: _load_script(Path(file)))


def import_script(file: str | os.PathLike[str]) -> ModuleType:
    """Execute a Python file, once per process, and return its module, which has a unique name.

    Raises:
        ValueError: if the file cannot be imported. The message says why.
        FileNotFoundError: if the file does not exist.
    """
    return _module("__main__", str(Path(file).resolve()))


def check_not_importing(doing: str) -> None:
    """Check that this is not called from a module that is being imported to find a build function.

    Raises:
        WrongStateError: during such an import.
    """
    if _importing:
        raise WrongStateError(
            f"{doing}: called while {_importing[-1]} is imported to find the build function of a "
            'run; put the code that the script runs below `if __name__ == "__main__":`'
        )


def _root_of(name: str, file: Path) -> Path | None:
    """Return the folder that a module was imported from; None if its path does not match its name."""
    whole = file.parent if file.stem == "__init__" else file.with_suffix("")
    parts = name.split(".")
    if list(whole.parts[-len(parts) :]) != parts:
        return None
    return whole.parents[len(parts) - 1]


def _import(where: str, load: Callable[[], Imported]) -> Imported:
    """Return the result of `load`. Raises ValueError that names `where` if it fails."""
    _importing.append(where)
    try:
        return load()
    # SystemExit is not an Exception, and would end a program that only looks for a function.
    except SystemExit as error:
        raise ValueError(
            f"{where}: cannot be imported, because it exits (status {error.code}); put the code "
            'that the script runs below `if __name__ == "__main__":`'
        ) from error
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"{where}: cannot be imported: {kind}: {error}") from error
    finally:
        _importing.pop()


def _is_of(found: str | None, file: str | None) -> bool:
    if found is None or file is None:
        return False
    # Through links, as one file may be reached by several paths.
    return Path(found).resolve() == Path(file).resolve()


def _origin(name: str) -> str | None:
    """Return the file that importing `name` would read; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin


def _load_script(file: Path) -> ModuleType:
    # Of the whole path, as scripts of one name lie in many folders.
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]
    name = f"{_PREFIX}{re.sub(r'[^a-zA-Z0-9]', '_', file.stem)}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    loader = SourceFileLoader(name, str(file))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickle look for it
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # a script finds what stands beside it
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    # No other process could import it by this name: what stands in it travels whole, as from a script.
    cloudpickle.register_pickle_by_value(module)
    return module
