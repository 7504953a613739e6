"""Run scripts one after the other, each in a process of its own that has the imports already.

    test      ScriptServer.run ----- a line of JSON: script, arguments, folder ----> this file, as a program
                                                                                     |  fork
    test      status, stdout, stderr <--- files of a temporary folder <------------ the script, as `__main__`
              <-------------------------- a line of JSON: the status -------------- | after it has ended

Importing PyTorch, and what optimizers and loggers import when they are first used, takes most scripts longer
than what they do. So the program imports what a script has imported before it forks for the next one. It runs
no line of a script itself: a script finds an empty namespace, and the modules as they are after their import.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Threads of numerical libraries do not outlive a fork, and small scripts need none.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ScriptServer:
    """Runs scripts as `subprocess.run` does; use it in `with`.

    modules: names to import before the first script.  options: of the interpreter.
    """

    def __init__(self, modules=(), *options):
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, *options, __file__, self._folder.name, *modules],
            env={**os.environ, **ONE_THREAD},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that its scripts end with it
        )

    def run(self, script, *arguments, cwd, timeout_s=3600.0):
        """Return the CompletedProcess of a script, with its output as text."""
        task = {"argv": [str(script), *map(str, arguments)], "cwd": str(cwd)}
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
            reply = self._reply(timeout_s)
            assert reply, f"{script} did not end within {timeout_s} s, or its server ended"
        except BaseException:
            self.close()  # or the next script would get the reply to this one
            raise
        stdout, stderr = (Path(self._folder.name, name).read_text() for name in ("1", "2"))
        return subprocess.CompletedProcess(task["argv"], json.loads(reply), stdout, stderr)

    def _reply(self, timeout_s):
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return self._process.stdout.readline() if selector.select(timeout_s) else b""

    def close(self):
        """End the program and the script that runs, if there is one."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def main():
    """Serve until the input ends; in the process of a script, run that."""
    folder, *modules = sys.argv[1:]
    import_all(modules)
    known = set(sys.modules)
    for line in sys.stdin:
        task = json.loads(line)
        gc.freeze()  # or the first collection of a script would touch, and so copy, all of it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forking beside the threads of numerical libraries
            pid = os.fork()
        if pid == 0:
            run(task, Path(folder))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        learned = Path(folder, "modules")
        if learned.exists():
            import_all(name for name in learned.read_text().split() if name not in known)
            learned.unlink()
        known = set(sys.modules)
        print(json.dumps(status), flush=True)


def import_all(names):
    """Import modules, of which some may be there for one script alone."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def run(task, folder):
    """Turn this process into that of a script, and run it."""
    for descriptor in (1, 2):
        file = os.open(folder / str(descriptor), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.chdir(task["cwd"])
    sys.argv = task["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    status = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        else:
            status = end.code or 0
    except BaseException:
        traceback.print_exc()
    (folder / "modules").write_text("\n".join(shared_modules()))
    # As the interpreter ends, but for clearing all modules, which takes a second.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def shared_modules():
    """Return what has been imported, but for files beside the script, which others may have too."""
    folders = (sys.prefix, sys.base_prefix, str(ROOT / "parllel"), str(ROOT / "patterns"))
    return [
        name
        for name, module in list(sys.modules.items())
        if (getattr(module, "__file__", None) or "").startswith(folders)
    ]


if __name__ == "__main__":
    main()
