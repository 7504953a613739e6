"""Choose the environment variables that a foreign program starts with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from parllel.system.processes.launch import unchanged_environment

# What programs need to find files, libraries, the language and the terminal; nothing that holds a secret.
# Those in the last row are for Windows, where many programs fail without them.
PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR", "TMP", "TEMP"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT"),
)


def program_environment(given: Mapping[str, str], passed: Iterable[str]) -> dict[str, str]:
    """Return the variables of this process that are on the allow-list, and those that the caller gives.

    given: variables to set, which go before those of this process.
    passed: names, or patterns such as "OMP_*", of more variables to pass on; one that is not set is skipped.

    Raises:
        TypeError, ValueError: for a given variable that no environment can hold.
    """
    # Here, as it would otherwise look like a death of the program.
    for name, value in given.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ValueError(f"environment: {name!r}: expected a name without '=' and zero bytes")
        if not isinstance(value, str):
            raise TypeError(f"environment: {name!r}: expected text, got {type(value).__name__}")
        if "\0" in value:  # not shown, as it may be a secret
            raise ValueError(f"environment: {name!r}: expected text without zero bytes")
    patterns = (*PASSED_VARIABLES, *passed)
    chosen = {
        name: value
        for name, value in unchanged_environment().items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {**chosen, **given}
