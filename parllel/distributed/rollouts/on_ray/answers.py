"""Wait for what an actor answers, never for ever."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from parllel.errors import WorkerDiedError, WorkerTimeoutError, WorkerTracebackError

# How long an actor may take beyond what it was asked to wait: a busy machine, a message lost and sent again.
LATE_S = 30.0
# How long one may take to start, on a machine that has much else to do.
START_S = 120.0
# Of what Ray says of a death, which goes on for a page.
_MAX_CHARACTERS = 600
_CAUSE = "The actor is dead because "


def answer(reference: Any, who: str, doing: str, timeout_s: float = LATE_S) -> Any:
    """Return what an actor's method returned.

    who, doing: the actor and its method, for messages.

    Raises:
        WorkerDiedError: if the actor has died.
        WorkerTimeoutError: if it does not answer in time.
        Exception: what the method raised, as itself.
    """
    try:
        return ray.get(reference, timeout=timeout_s)
    except RayTaskError as error:
        text = f"{who}: {doing}; traceback of the actor:\n\n{error}"
        # Ray raises a mixture of its own class and this one; None is what could not be pickled.
        cause = error.cause if isinstance(error.cause, Exception) else error
        raise cause from WorkerTracebackError(text)
    except RayActorError as error:
        raise WorkerDiedError(f"{who}: {doing}: its actor died: {why(error)}") from None
    except GetTimeoutError:
        raise WorkerTimeoutError(
            f"{who}: {doing}: expected an answer within {timeout_s:g} s, got none; its node may be "
            "overloaded or gone"
        ) from None


def why(error: BaseException) -> str:
    """Return in one line what Ray says of a death, or of whatever else went wrong."""
    said = " ".join(str(error).split()) or type(error).__name__
    # Before it are the numbers of the actor, by which it is not known here.
    return said[max(said.find(_CAUSE), 0) :][:_MAX_CHARACTERS]
