"""Run scripts one after the other, each in a process of its own that has the imports already.

    python run_blocks.py MODULES SCRIPT ...

MODULES: names to import first, joined by commas. Each script runs as `__main__`, in the folder that it is in,
with an empty namespace. The first that fails ends this, with its traceback and exit status.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import warnings
from pathlib import Path


def main() -> int:
    """Return the exit status; in the process of a script, run that."""
    modules, *scripts = sys.argv[1:]
    for name in filter(None, modules.split(",")):
        importlib.import_module(name)
    for script in scripts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking beside the threads of numerical libraries
            pid = os.fork()
        if pid == 0:
            os.chdir(Path(script).parent)
            sys.argv = [script]
            runpy.run_path(script, run_name="__main__")
            return 0
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status:
            print(f"{Path(script).name} ended with {status}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
