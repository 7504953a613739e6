"""Confine a child process by what Linux offers without root, before any code of others runs in it.

    fork server -> stand-in               outside of the namespaces: passes on how the inner process ends
                   +-- init               process 1 inside: collects orphans; its end kills all that is inside
                   +-- inner process      process 2 inside: mounts /proc, drops capabilities, enters Landlock,
                                          and goes on as the child

Without namespaces there is one process, as for any other child. All of it is in one process group, which the
kernel kills with the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0), bytes(24)  # version 3, this thread; none of them
# The same numbers on all architectures. C libraries have no functions for them.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))  # make and remove entries of all kinds
_SCOPE_SIGNAL = 2
LANDLOCK_SIGNALS = 6  # of Landlock: the first that keeps signals inside


@dataclass(frozen=True)
class Confinement:
    """What confines a child; each part takes effect where it is given.

    Attributes:
        namespaces: whether the child has user, process and mount namespaces of its own.
        landlock: version of Landlock to use, of `landlock_version`; 0 for none.
        writable: folders and files below which it may write; read only by Landlock.

    A child that is confined gains no privileges by executing a program, has no capabilities, and leaves no
    core dumps.
    """

    namespaces: bool = False
    landlock: int = 0
    writable: tuple[str, ...] = ()

    def enter(self, kept: Sequence[int] = ()) -> None:
        """Confine this process, which must have a single thread, for good.

        kept: descriptors that a process outside of the namespaces keeps open.

        With namespaces this returns in another process; the first one waits for its end, and ends as it does.

        Raises:
            OSError: if the system refuses; names the call.
        """
        import resource

        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.namespaces:
            _enter_namespaces(kept)
            options = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            _call("mount", b"proc", b"/proc", b"proc", options, None)
        _drop_capabilities()
        if self.landlock:
            _enter_landlock(self.landlock, self.writable)


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    with contextlib.suppress(OSError):
        return _call("syscall", _CREATE_RULESET, None, 0, _VERSION)
    return 0


def hide_from_others() -> bool:
    """Keep processes of the same user from this one's memory and variables; return whether that worked.

    Linux only. Root may look all the same.
    """
    with contextlib.suppress(OSError, AttributeError):
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        return True
    return False


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    # As wide as a register: the C library may read all of it.
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(getattr(_libc(), name)(*wide))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


# ---------------------------------------------------------------------- namespaces


def _enter_namespaces(kept: Sequence[int]) -> None:
    """Go on in new namespaces, in a grandchild of the caller's parent."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNS)
    # Inside it is the same user, so that the files of that user are its own.
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    # A process that does nothing else: the system protects process 1 from signals, also from its own.
    init = os.fork()
    if init == 0:
        _collect_orphans()
    inner = os.fork()
    if inner:
        _stand_in_for(inner, init, kept)


def _collect_orphans() -> None:
    """Be process 1 of the namespace; never returns."""
    try:
        _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        _drop_capabilities()
        # Pipes must hang up when the inner process ends.
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            signal.sigwait([signal.SIGCHLD])
    finally:
        os._exit(1)


def _stand_in_for(inner: int, init: int, kept: Sequence[int]) -> None:
    """Wait for the end of the inner process, end all else inside, and end as it did; never returns."""
    code = 1
    try:
        last = 3
        for fd in sorted(kept):
            os.closerange(last, fd)
            last = fd + 1
        os.closerange(last, os.sysconf("SC_OPEN_MAX"))
        code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        os.kill(init, signal.SIGKILL)
        # It ends after all others inside have ended.
        os.waitpid(init, 0)
        if code < 0:
            with contextlib.suppress(OSError):  # of SIGKILL, which needs no default
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    finally:
        os._exit(code & 0xFF)


def _drop_capabilities() -> None:
    """Give up all privileges of root; by `no_new_privs` no program brings them back."""
    _call("capset", *_CAPABILITIES)


# ---------------------------------------------------------------------- Landlock


def _enter_landlock(version: int, writable: Sequence[str]) -> None:
    handled = _WRITE_FILE | _CHANGE_FOLDER
    handled |= _REFER if version >= 2 else 0
    handled |= _TRUNCATE if version >= 3 else 0
    rules = struct.pack("=QQQ", handled, 0, _SCOPE_SIGNAL)
    length = 24 if version >= LANDLOCK_SIGNALS else 8
    ruleset = _call("syscall", _CREATE_RULESET, rules, length, 0)
    try:
        for path in writable:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                _allow(ruleset, path, handled)
        _call("syscall", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _WRITE_FILE | _TRUNCATE
        rule = struct.pack("=Qi", rights, fd)
        _call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
