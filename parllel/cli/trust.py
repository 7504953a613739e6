"""Whether what a run's folder names may be executed.

A run is put together again by a function of a script, which its folder names and which is imported for it. A
folder that came from elsewhere may name any file of this machine, or bring one along.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from parllel.runs import Reference, RunFolder


def check_source(path: str, *, trusted: bool) -> None:
    """Refuse to execute what is not below the folder that the command was started in.

    Links and `..` are followed first. What lies in the run's own folder came with it, and is refused too.

    Args:
        path: of the run's folder.
        trusted: whether it was said that anything may be executed.

    Raises:
        ValueError: names the file, and how to allow it.
        FileNotFoundError, ValueError: if there is no run.
    """
    folder = RunFolder.open(path)
    record = folder.read_record()
    if trusted:
        return
    here, run = Path.cwd().resolve(), folder.path.resolve()
    for reference in (record.build_function, record.config_class):
        if reference is None or reference.problem is not None:  # which is never imported
            continue
        if reference is record.config_class and _is_installed(reference):
            continue  # a dataclass, not called with anything but the config's values
        file = None if reference.file is None else Path(reference.file).resolve()
        if file is not None and file.is_relative_to(here) and not file.is_relative_to(run):
            continue
        where = "in the run's own folder" if file and file.is_relative_to(run) else f"not in {here}"
        raise ValueError(
            f"{path}: this would execute {file or reference.name}, which is {where}; go to the folder of "
            "the script first, or give --trust if you know where this run comes from"
        )


def _is_installed(reference: Reference) -> bool:
    """Return whether a module's name leads to its file on Python's own path; nothing is imported for it."""
    module = reference.name.partition(":")[0]
    if module == "__main__" or reference.file is None:
        return False
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None:
        return False
    places = spec.submodule_search_locations or [spec.origin or ""]
    file = Path(reference.file).resolve()
    return any(file.is_relative_to(Path(place).resolve()) for place in places if place)
