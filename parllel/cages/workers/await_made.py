"""Wait for the first words of the workers of a cage, which come when their environments are made."""

from __future__ import annotations

from collections.abc import Sequence

from parllel.buffers.conversation import FIRST_WORDS, Conversation
from parllel.cages.spaces import Spaces
from parllel.errors import first_of
from parllel.system.processes.several import await_any

SETTLE_S = 0.01  # what goes wrong in many workers at once does so within this time


def await_made(workers: Sequence[Conversation], timeout_s: float) -> list[tuple[int, Spaces]]:
    """Return what the workers say at their start; after a failure, do not wait for the rest."""
    doing = "while its environments were made"
    made: dict[int, tuple[int, Spaces]] = {}
    errors: list[Exception] = []
    awaited = {worker.child: w for w, worker in enumerate(workers)}
    left_s = timeout_s
    while awaited:
        # For any of them, not one after the other: it may be the last that fails at once.
        heard, left_s = await_any(list(awaited), left_s)
        for child in heard:
            w = awaited.pop(child)
            try:
                made[w] = workers[w].answer(FIRST_WORDS, doing)
            except Exception as error:
                errors.append(error)
                # The others get an instant to fail as well, so that the error can say how many did.
                left_s = min(left_s, SETTLE_S)
        if not heard:
            # After an error the others had no time, so they are not to blame for being late.
            errors = errors or [child.late_error(timeout_s, doing) for child in awaited]
            break
    if errors:
        raise first_of(errors)
    return [made[w] for w in range(len(workers))]
