"""Confinement of a child process on Linux without root, before any untrusted code runs in it.

    fork server -> stand-in               outside the namespaces: exits as the inner process does
                   +-- init               process 1 inside: collects orphans; its end kills everything inside
                   +-- inner process      process 2 inside: mounts /proc, drops capabilities, enters Landlock,
                                          and continues as the child

Without namespaces there is one process, as for any other child. All processes are in one process group, which
the kernel kills with the parent.
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
_CAPABILITIES = (
    struct.pack("=Ii", 0x20080522, 0),
    bytes(24),
)  # version 3, this thread; no capabilities
# The same numbers on all architectures. C libraries have no functions for them.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))  # make and remove entries of all kinds
_SCOPE_SIGNAL = 2
LANDLOCK_SIGNALS = 6  # first version of Landlock that blocks signals to the outside


@dataclass(frozen=True)
class Confinement:
    """Restrictions of a child process; each is optional.

    Attributes:
        namespaces: whether the child gets separate user, process and mount namespaces.
        landlock: version of Landlock to use, at most `landlock_version()`; 0 for none.
        writable: folders and files that it may write; used only by Landlock.
        probing: whether the child only finds out if the system permits this. The parent then receives the
            system's refusal as an exception. Otherwise the refusal is printed.

    A confined child gains no privileges by executing a program, has no capabilities, and leaves no core
    dumps.
    """

    namespaces: bool = False
    landlock: int = 0
    writable: tuple[str, ...] = ()
    probing: bool = False

    def enter(self, kept: Sequence[int] = ()) -> None:
        """Confine this process, which must have a single thread, irrevocably.

        kept: descriptors that the stand-in process outside the namespaces keeps open.

        With namespaces this returns in a different process; the calling one waits for its end and exits
        alike.

        Raises:
            OSError: if the system refuses; names the call.
        """
        import resource

        # First, as Landlock refuses a process without it. Like the limit below, it survives every
        # fork and `exec`.
        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.namespaces:
            _enter_namespaces(kept)
            # In the new mount namespace only, over the old /proc, which lists
            # the processes outside.
            options = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            _call("mount", b"proc", b"/proc", b"proc", options, None)
        # After the mount, which needs the capabilities that a new user namespace gives.
        _drop_capabilities()
        if self.landlock:
            # Last, as it forbids mounts.
            _enter_landlock(self.landlock, self.writable)


def landlock_version() -> int:
    """Return the kernel's version of Landlock; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    with contextlib.suppress(OSError):
        return _call("syscall", _CREATE_RULESET, None, 0, _VERSION)
    return 0


def hide_from_others() -> bool:
    """Hide this process's memory and variables from processes of the same user; return whether it worked.

    Linux only. Root still has access.
    """
    with contextlib.suppress(OSError, AttributeError):
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        return True
    return False


@functools.cache
def _libc() -> ctypes.CDLL:
    # With a copy of errno per thread, which Python's own system calls do not overwrite.
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    # As wide as a register, of which the C library may read every bit.
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = int(getattr(_libc(), name)(*wide))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


# ---------------------------------------------------------------------- namespaces


def _enter_namespaces(kept: Sequence[int]) -> None:
    """Continue in new namespaces, in a grandchild of the caller's parent."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNS)
    # Mapped to the same user inside, so that the user's files remain its own.
    # In this order: the kernel refuses a gid_map of a user without privileges until
    # setgroups is denied.
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    # A separate process for init, as the kernel shields process 1 from signals, even its own.
    # The first fork after `unshare` is process 1. The caller itself stays outside, as the stand-in.
    init = os.fork()
    if init == 0:
        _collect_orphans()
    inner = os.fork()
    if inner:
        _stand_in_for(inner, init, kept)


def _collect_orphans() -> None:
    """Run as process 1 of the namespace; never returns."""
    try:
        # If the stand-in dies first, however it does, the whole namespace must end with it.
        _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # This is a copy of the fork server's memory, which processes of the same user could read.
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)
        _drop_capabilities()
        # Closed, so that pipes hang up when the inner process ends.
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        # Blocked before the first look, so that an end between `waitpid` and
        # `sigwait` stays pending.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            signal.sigwait([signal.SIGCHLD])
    finally:
        # Never back to the caller, whatever was raised: it would run the child's
        # target as process 1.
        os._exit(1)


def _stand_in_for(inner: int, init: int, kept: Sequence[int]) -> None:
    """Wait for the inner process, end everything else inside, and exit as it did; never returns."""
    code = 1
    try:
        last = 3
        # Copies of the child's pipes here would keep them open after the child's end. `kept` is the
        # descriptor by which the kernel kills this group with the parent.
        for fd in sorted(kept):
            os.closerange(last, fd)
            last = fd + 1
        os.closerange(last, os.sysconf("SC_OPEN_MAX"))
        code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        os.kill(init, signal.SIGKILL)
        # It ends only after all other processes inside have ended.
        os.waitpid(init, 0)
        # Repeated, as the parent reads the child's end from the exit of this process.
        if code < 0:
            with contextlib.suppress(OSError):  # SIGKILL's action cannot be set, and need not be
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    finally:
        os._exit(code & 0xFF)


def _drop_capabilities() -> None:
    """Drop all capabilities; with `no_new_privs` no program can regain them."""
    _call("capset", *_CAPABILITIES)


# ---------------------------------------------------------------------- Landlock


def _enter_landlock(version: int, writable: Sequence[str]) -> None:
    # Reading is not restricted. What a version does not know must not be asked of it: it would
    # refuse the whole ruleset.
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
            # The kernel refuses a rule that gives a file the rights of folders.
            rights &= _WRITE_FILE | _TRUNCATE
        rule = struct.pack("=Qi", rights, fd)
        _call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)
