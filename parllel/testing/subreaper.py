"""Adoption of orphaned descendants by this process (Linux's child subreaper), counted by requests."""

from __future__ import annotations

import ctypes
import sys

_GET_SUBREAPER, _SET_SUBREAPER = 37, 36  # of prctl

_askers = 0
_before = False


def begin_adopting() -> None:
    """Adopt orphans until `end_adopting` has been called equally often."""
    # Counted, as guards and services end in any order, and none may end what another still needs.
    global _askers, _before
    if _askers == 0:
        _before = set_adopting(True)
    _askers += 1


def end_adopting() -> None:
    """Return to the setting of before, if nothing else asks for adoption."""
    global _askers
    _askers -= 1
    if _askers == 0:
        set_adopting(_before)


def set_adopting(wanted: bool) -> bool:
    """Set whether this process adopts orphaned descendants; return the former setting."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    before = ctypes.c_int(0)
    libc.prctl(_GET_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    if bool(before.value) != wanted:
        libc.prctl(_SET_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)
