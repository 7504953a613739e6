"""Calls of agents' functions, whose result is an action or an AgentFailure."""

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
    """Return how many of the arguments (observation, configuration) a function accepts.

    Raises:
        ValueError: if it requires other arguments.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):  # compiled functions may have no signature
        return 2
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in positional[2:] if p.default is p.empty]
    needed += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if needed:
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise ValueError(
            f"{name}: expected a function of at most two arguments, (observation, configuration), "
            f"got one that also requires {needed}"
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
    """Call a function and return its action as plain values, or an AgentFailure.

    errors: stream for the traceback of an exception.

    An exception of any class becomes a failure of the agent, except KeyboardInterrupt, which is raised.
    """
    arguments = (observation, configuration)[:n_arguments]
    try:
        action = function(*map(with_attributes, arguments))
        return action if isinstance(action, AgentFailure) else plain(action)
    except WireError as error:
        # Whether raised here or by the agent itself, there is no action.
        return AgentFailure("INVALID", f"returned an invalid action: {error}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return failure_of(error, errors)


def failure_of(error: BaseException, errors: TextIO) -> AgentFailure:
    """Convert an exception to an AgentFailure, and write its traceback to `errors`."""
    try:
        # Without our own frame, which is of no use to the agent's author.
        frames = error.__traceback__ and error.__traceback__.tb_next
        for line in traceback.format_exception(type(error), error, frames, limit=-_MAX_FRAMES):
            errors.write(line)
        text = str(error)
        name = type(error).__name__
        return AgentFailure("ERROR", f"{name}: {text}" if text else name)
    except Exception:  # raised by the exception's own __str__
        return AgentFailure("ERROR", type(error).__name__)
