"""Lazy imports of the names that a package offers (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from parllel.errors import install_command


def lazy_names(
    package: str,
    places: Mapping[str, Sequence[str]],
    extra: str | None = None,
    libraries: Sequence[str] = (),
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for the `__init__.py` of a package.

    Type checkers need the same imports under TYPE_CHECKING.

    Args:
        places: names by the module that defines them, relative to the package. A module must not have the
            same name as an object: importing the module would replace the object.
        extra: the extra that installs `libraries`.
        libraries: third-party modules that some of the names need.

    Raises:
        AttributeError: from `__getattr__`, for any other name.
        ImportError: from `__getattr__`, if one of the libraries is missing; names the extra.
    """
    module_of = {name: f"{package}.{module}" for module, names in places.items() for name in names}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(module_of[name])
        except ImportError as error:
            # Another package may have raised it already, naming its own extra.
            cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
            missing = getattr(cause, "name", None)
            if extra is None or missing not in libraries:
                raise
            raise ImportError(
                f"{package}.{name} needs {missing}: {install_command(extra)}"
            ) from error
        found: object = getattr(module, name)
        setattr(sys.modules[package], name, found)  # cached: `__getattr__` is not called again
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, names
