"""Trust in the script that a run folder names.

Rebuilding a run or its policy imports the script named in its folder. A run folder from elsewhere may name
any file of this machine, or contain its own script. The commands check this, because people pass them folders
that they were sent; functions do not. A script given by the user is not checked.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from parllel.runs.reference import Reference
from parllel.runs.run_folder import RunFolder


def check_source(path: str, *, trusted: bool) -> None:
    """Check that the run's script is inside the current folder and not in the run's own folder.

    Links and `..` are resolved first.

    Args:
        path: the run's folder.
        trusted: whether the user gave --trust, which allows any script.

    Raises:
        ValueError: for any other script, or for a folder without a training run. The message names
            the script and how to allow it.
        FileNotFoundError: if the folder does not exist.
    """
    folder = RunFolder.open(path)
    record = folder.read_record()
    source = record.source()  # even if trusted: a run of another kind names no script
    if trusted:
        return
    here, run = Path.cwd().resolve(), folder.path.resolve()
    for reference in (source, record.config_class):
        if reference is None or reference.problem is not None:  # never imported
            continue
        if reference is record.config_class and _is_installed(reference):
            continue  # an installed dataclass, which is called with the config's values only
        file = None if reference.file is None else Path(reference.file).resolve()
        if file is not None and file.is_relative_to(here) and not file.is_relative_to(run):
            continue
        where = "in the run's own folder" if file and file.is_relative_to(run) else f"not in {here}"
        raise ValueError(
            f"{path}: this would execute {file or reference.name}, which is {where}; go to the folder of "
            "the script first, or give --trust if you know where this run comes from"
        )


def _is_installed(reference: Reference) -> bool:
    """Return whether a module's file is on Python's own path, without importing it."""
    module = reference.name.partition(":")[0]
    if module == "__main__" or reference.file is None:
        return False
    # Only the first name: for a dotted name, `find_spec` imports the parent packages.
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None:
        return False
    places = spec.submodule_search_locations or [spec.origin or ""]
    file = Path(reference.file).resolve()
    return any(file.is_relative_to(Path(place).resolve()) for place in places if place)
