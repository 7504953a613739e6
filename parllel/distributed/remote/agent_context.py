"""The part of an environment that its agents depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class AgentContext(Protocol):
    """The part of an `Environment` from which agents are built.

    Attributes:
        name: name of the environment, such as "rps".
        configuration: plain JSON values, of which agents receive copies. `Agent` itself reads `actTimeout`
            and `agentTimeout` (seconds) and `maxLogLength` (characters).
        agents: built-in agents keyed by name. Each is a function of (observation, configuration).
        debug: whether agents' output and tracebacks are repeated on stderr.
    """

    @property
    def name(self) -> str: ...

    @property
    def configuration(self) -> dict[str, Any]: ...

    @property
    def agents(self) -> Mapping[str, Callable[..., Any]]: ...

    @property
    def debug(self) -> bool: ...
