"""What the processes of agents may use, and what keeps them from other processes."""

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

# What agents may need beside what programs do: for libraries, and for pictures without a screen.
_PASSED = (
    *(*PASSED_VARIABLES, "PYTHON*", "CUDA_*", "NVIDIA_*", "*_NUM_THREADS", "VECLIB_*"),
    *("MUJOCO_*", "PYOPENGL_*", "SDL_*", "DISPLAY", "XDG_*"),
)
_PROBE_S = 10.0
_lock = threading.Lock()
_found: tuple[Confinement, str] | None = (
    None  # what this machine offers, and why it has no namespaces
)


@dataclass(frozen=True)
class AgentSettings:
    """What the process of an agent may use.

    Attributes:
        memory_limit_bytes: of private memory that a process of the agent's can write to, Python included,
            which takes some 80 MB. Each process that it starts has the same limit. None is no limit.
        variables: names or patterns of environment variables to pass on, such as "OPENAI_API_KEY", beside
            those that find files and libraries.
        writable: folders below which it may write, beside its own folder and the one for temporary files;
            effective where `confinement_lines` says so.
    """

    memory_limit_bytes: int | None = None
    variables: tuple[str, ...] = ()
    writable: tuple[str, ...] = (".",)

    def confinement(self, folder: str | None) -> Confinement:
        """Return what confines an agent whose code is in a folder; None for source text."""
        own = [] if folder is None else [folder]
        # Devices, as for GPUs and for what is thrown away; what is there of others has permissions.
        paths = (*self.writable, *own, tempfile.gettempdir(), "/dev")
        return replace(available()[0], writable=tuple(map(os.path.abspath, paths)))

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of the agent, of these."""
        patterns = (*_PASSED, *self.variables)
        return {
            name: value
            for name, value in variables.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }


def available() -> tuple[Confinement, str]:
    """Return what this machine offers to confine agents, found out once, and why it has no namespaces."""
    global _found
    with _lock:
        if _found is None:
            problem = _namespaces_problem()
            _found = Confinement(namespaces=not problem, landlock=landlock_version()), problem
        return _found


def confinement_lines(*, hidden: bool) -> list[str]:
    """Return a line for each thing that agents in processes cannot do: by what that holds here, if at all.

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
    """Return why there are no namespaces for agents, or an empty text."""
    if not sys.platform.startswith("linux"):
        return "they are Linux's"
    try:
        # A process that enters them is the only proof: containers and distributions refuse any of its calls.
        child = Child(_inside, name="probe of namespaces", confinement=Confinement(namespaces=True))
        try:
            child.receive(_PROBE_S, "when it entered namespaces")
        finally:
            child.kill()
    except (OSError, ParllelError) as error:
        return str(error)
    return ""


def _inside(connection: Connection) -> None:
    connection.send_bytes(b"inside")
