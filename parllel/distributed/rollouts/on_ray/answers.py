"""Results of actor calls, always awaited with a time-out."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from parllel.errors import WorkerDiedError, WorkerTimeoutError, WorkerTracebackError

# Time allowed beyond the time that a call itself waits: for a busy machine, or a message that is sent again.
LATE_S = 30.0
# Time-out for the start of an actor, on a busy machine.
START_S = 120.0
# Limit for Ray's description of a death, which fills a page.
_MAX_CHARACTERS = 600
_CAUSE = "The actor is dead because "


def answer(reference: Any, who: str, doing: str, timeout_s: float = LATE_S) -> Any:
    """Return the result of an actor call.

    who, doing: names of the actor and its operation for error messages.

    Raises:
        WorkerDiedError: if the actor has died.
        WorkerTimeoutError: if it does not answer in time.
        Exception: the exception that the method raised, with its own class.
    """
    try:
        return ray.get(reference, timeout=timeout_s)
    except RayTaskError as error:
        text = f"{who}: {doing}; traceback of the actor:\n\n{error}"
        # Ray raises a mixture of its own class and the original; `cause` is None if it was not picklable.
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
    """Return Ray's description of an error or a death in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    # Preceded by Ray's ids of the actor, which mean nothing to users.
    return text[max(text.find(_CAUSE), 0) :][:_MAX_CHARACTERS]
