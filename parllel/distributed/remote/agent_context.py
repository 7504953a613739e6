"""What an agent needs to know of the environment that it acts in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class AgentContext(Protocol):
    """The part of an `Environment` that agents are made with.

    Attributes:
        name: of the environment, such as "rps".
        configuration: plain JSON values. Agents are handed copies. Of these an `Agent` itself reads
            `actTimeout`, `agentTimeout` (seconds) and `maxLogLength` (characters).
        agents: the environment's built-in agents by name, functions of (observation, configuration).
        debug: whether what agents print and the tracebacks of their errors are repeated on stderr.
    """

    @property
    def name(self) -> str: ...

    @property
    def configuration(self) -> dict[str, Any]: ...

    @property
    def agents(self) -> Mapping[str, Callable[..., Any]]: ...

    @property
    def debug(self) -> bool: ...
