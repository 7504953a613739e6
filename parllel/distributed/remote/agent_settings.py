"""Permissions and limits of agents' processes, and how they are isolated from other processes."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection

from parllel.errors import ParllelError
from parllel.system.processes.child import Child
from parllel.system.processes.confinement import LANDLOCK_SIGNALS, Confinement, landlock_version
from parllel.system.processes.program_start import PASSED_VARIABLES

# Environment variables passed to agents, besides those for any program: for libraries and headless rendering.
_PASSED = (
    *(*PASSED_VARIABLES, "PYTHON*", "CUDA_*", "NVIDIA_*", "*_NUM_THREADS", "VECLIB_*"),
    *("MUJOCO_*", "PYOPENGL_*", "SDL_*", "DISPLAY", "XDG_*"),
)
_PROBE_S = 10.0
_lock = threading.Lock()
# Isolation that this machine supports, and the reason if it has no namespaces; set by the first call.
_found: tuple[Confinement, str] | None = None


@dataclass(frozen=True)
class AgentSettings:
    """Permissions and limits of an agent's process.

    Attributes:
        memory_limit_bytes: limit on private writable memory, including about 80 MB for Python. Applies to
            each process that the agent starts. None means no limit.
        variables: names or patterns of environment variables to pass, such as "OPENAI_API_KEY", besides those
            for files and libraries.
        writable: folders below which the agent may write, besides its own folder and the temporary folder.
            Enforced where `confinement_lines` reports it.
    """

    memory_limit_bytes: int | None = None
    variables: tuple[str, ...] = ()
    writable: tuple[str, ...] = (".",)

    def confinement(self, folder: str | None) -> Confinement:
        """Return the confinement of an agent, given the folder of its code; None for source text."""
        own = [] if folder is None else [folder]
        # Devices include GPUs and /dev/null; others are protected by file permissions.
        paths = (*self.writable, *own, tempfile.gettempdir(), "/dev")
        return replace(available()[0], writable=tuple(map(os.path.abspath, paths)))

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that are passed to the agent."""
        patterns = (*_PASSED, *self.variables)
        return {
            name: value
            for name, value in variables.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }


def available() -> tuple[Confinement, str]:
    """Return the isolation that this machine supports, and the reason if it has no namespaces. Cached."""
    global _found
    # The lock is held during the probe: other threads wait for its result rather than probe too.
    with _lock:
        if _found is None:
            problem = _namespaces_problem()
            _found = Confinement(namespaces=not problem, landlock=landlock_version()), problem
        return _found


def confinement_lines(*, hidden: bool) -> list[str]:
    """Return one line per restriction on agents' processes, and the mechanism that enforces it here, if any.

    hidden: whether this process is hidden by `hide_from_others`.
    """
    found, problem = available()
    names = {"process namespace": found.namespaces, "Landlock": found.landlock > 0}
    signals = {**names, "Landlock": found.landlock >= LANDLOCK_SIGNALS}
    lines = {
        "signal the server and other processes": _by(signals),
        "change the limits and priorities of other processes": _by(
            {"process namespace": found.namespaces}
        ),
        "read the memory and the variables of the server": _by({**names, "not dumpable": hidden}),
        "read those of other processes": _by(names),
        "write files elsewhere": _by({"Landlock": found.landlock > 0}),
        "gain privileges, or use those of root": _by(
            {"no new privileges, no capabilities": sys.platform.startswith("linux")}
        ),
    }
    reason = f" (no namespaces: {problem})" if problem else ""
    return [
        f"agents cannot {what}: {by or f'does NOT hold on this machine{reason}'}"
        for what, by in lines.items()
    ]


def _by(means: Mapping[str, bool]) -> str:
    found = [name for name, holds in means.items() if holds]
    return f"holds ({', '.join(found)})" if found else ""


def _namespaces_problem() -> str:
    """Return the reason why agents cannot have namespaces, or ""."""
    if not sys.platform.startswith("linux"):
        return "only Linux has them"
    try:
        # Only a process that enters them proves it: containers and distributions may refuse each of the
        # calls.
        probe = Confinement(namespaces=True, probing=True)
        child = Child(_inside, name="probe of namespaces", confinement=probe)
        try:
            child.receive(_PROBE_S, "when it entered namespaces")
        finally:
            child.kill()
    except (OSError, ParllelError) as error:
        return str(error)
    return ""


def _inside(connection: Connection) -> None:
    connection.send_bytes(b"inside")
