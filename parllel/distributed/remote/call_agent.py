"""Call what acts, and turn whatever comes of it into an action or an AgentFailure."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from parllel.distributed.remote.attributes import with_attributes
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.plain_values import plain
from parllel.distributed.wire.wire_error import WireError

_MAX_FRAMES = 20


def number_of_arguments(function: Callable[..., Any]) -> int:
    """Return how many of (observation, configuration) a function takes.

    Raises:
        ValueError: if it needs more, or others.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # compiled functions may not say
        return 2
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in positional[2:] if p.default is p.empty]
    needed += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if needed:
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise ValueError(
            f"{name}: expected a function of none, one or two arguments, (observation, configuration), got "
            f"one that also needs {needed}"
        )
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    return min(len(positional), 2)


def ask(
    function: Callable[..., Any],
    n_arguments: int,
    observation: Any,
    configuration: Mapping[str, Any],
    errors: TextIO,
) -> Any:
    """Return the action of a function, in plain values, or an AgentFailure.

    errors: where the traceback of an exception is written.

    An exception of any class is the agent's failure, except for KeyboardInterrupt, which is raised.
    """
    arguments = (observation, configuration)[:n_arguments]
    try:
        action = function(*map(with_attributes, arguments))
        return action if isinstance(action, AgentFailure) else plain(action)
    except WireError as error:
        # Also one that the agent itself raised: there is no action either way.
        return AgentFailure("INVALID", f"returned what is no action: {error}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return failure_of(error, errors)


def failure_of(error: BaseException, errors: TextIO) -> AgentFailure:
    """Return the failure that an exception means, and write its traceback."""
    try:
        # Without our own call, of which the author of the agent knows nothing.
        frames = error.__traceback__ and error.__traceback__.tb_next
        for line in traceback.format_exception(type(error), error, frames, limit=-_MAX_FRAMES):
            errors.write(line)
        text = str(error)
        name = type(error).__name__
        return AgentFailure("ERROR", f"{name}: {text}" if text else name)
    except Exception:  # its own text fails
        return AgentFailure("ERROR", type(error).__name__)
