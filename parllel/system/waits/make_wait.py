"""Choice of the wait for this platform."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parllel.system.waits.compiled_wait import CompiledWait
from parllel.system.waits.semaphore_wait import SemaphoreWait
from parllel.system.waits.sleep_slots import SleepSlots
from parllel.system.waits.wait import SPIN_US, Wait


def available_kinds() -> list[str]:
    """Return the kinds of wait that work on this machine, the fastest first."""
    return [*([CompiledWait.kind] if CompiledWait.available() else []), SemaphoreWait.kind]


def make_wait(
    lines: NDArray[np.int32],
    kind: str | None = None,
    *,
    spin_us: float = SPIN_US,
    sleep_slots: SleepSlots | None = None,
) -> Wait:
    """Make a wait over `lines`.

    kind: "compiled" or "semaphore"; default the first of `available_kinds()`.
    sleep_slots: made before the processes start; required for "semaphore", unused for "compiled".

    Raises:
        ValueError: for a kind that is not available here, for "semaphore" without sleep_slots, and as Wait.
    """
    # All processes of a line must use one kind, so a cage chooses once and passes its name on.
    kinds = available_kinds()
    kind = kinds[0] if kind is None else kind
    if kind not in kinds:
        raise ValueError(f"kind: expected one of {kinds}, got {kind!r}")
    if kind == CompiledWait.kind:
        return CompiledWait(lines, spin_us=spin_us)
    if sleep_slots is None:
        raise ValueError(
            "sleep_slots: expected SleepSlots that all processes share, got None; create them "
            "before the processes start"
        )
    return SemaphoreWait(lines, sleep_slots, spin_us=spin_us)
