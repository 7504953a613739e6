"""Names that a package offers and imports only when they are first asked for (PEP 562)."""

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
        places: the names that each module defines; modules without the package's own name. None of these may
            be called like a name: importing it would put the module in the name's place.
        extra: what installs the libraries without which some of the names cannot be imported.
        libraries: those.

    Raises:
        AttributeError: by `__getattr__`, for any other name.
        ImportError: by `__getattr__`, if one of the libraries is missing; names the extra.
    """
    module_of = {name: f"{package}.{module}" for module, names in places.items() for name in names}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(module_of[name])
        except ImportError as error:
            # Another package of ours may have said it already, with an extra of its own.
            cause = error if isinstance(error, ModuleNotFoundError) else error.__cause__
            missing = getattr(cause, "name", None)
            if extra is None or missing not in libraries:
                raise
            raise ImportError(
                f"{package}.{name} needs {missing}: {install_command(extra)}"
            ) from error
        found: object = getattr(module, name)
        setattr(sys.modules[package], name, found)  # not asked for again
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, names
