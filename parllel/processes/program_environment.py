"""Choose the environment variables that a foreign program starts with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

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
    """
    patterns = (*PASSED_VARIABLES, *passed)
    chosen = {
        name: value
        for name, value in os.environ.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {**chosen, **given}
