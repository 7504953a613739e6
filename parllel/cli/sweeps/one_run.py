"""One run of a sweep, in a process of its own: trained, or resumed if its folder exists.

python -m parllel.cli.sweeps.one_run SCRIPT FOLDER NAME KEY=VALUE ...
"""

from __future__ import annotations

import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from parllel.cli.rerun import changes_of
from parllel.cli.sweeps.script import load_script
from parllel.runners.runs import resume, train
from parllel.runs.config import change_config
from parllel.runs.run_folder import RunFolder
from parllel.system.start_program import start_program

_LOCK_S = 10.0  # for workers of a killed process to end


def main(argv: Sequence[str]) -> int:
    """Train or resume the run. Returns the exit status: 130 or 143 after a signal, 1 after an error.

    The last line of standard error names the error.
    """
    script, base, name, *pairs = argv
    try:
        return _run(script, Path(base), name, pairs)
    except Exception as error:
        traceback.print_exc()
        # The traceback may end with notes, and the message may have several lines.
        text = (str(error).splitlines() or [""])[0]
        print(f"{type(error).__name__}: {text}", file=sys.stderr, flush=True)
        return 1


def _run(file: str, base: Path, name: str, pairs: Sequence[str]) -> int:
    script, path = load_script(file), base / name
    if (path / "run.json").is_file():
        _await_lock(RunFolder.open(path))
        # Not the script that the folder names: the user named one.
        kind = type(script.config)
        return resume(path, build=script.build, config_class=kind)[0].exit_status
    # A process that was killed before it wrote run.json leaves a folder without a run.
    shutil.rmtree(path, ignore_errors=True)
    config = change_config(script.config, changes_of(pairs) or {})
    return train(script.build, config, base=base, name=name)[0].exit_status


def _await_lock(folder: RunFolder) -> None:
    end = time.monotonic() + _LOCK_S
    while folder.in_use and time.monotonic() < end:  # otherwise `resume` raises the error
        time.sleep(0.05)


if __name__ == "__main__":
    start_program()
    raise SystemExit(main(sys.argv[1:]))
