"""What a specification of an agent means, in the order in which it is tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parllel.remote.agent_context import AgentContext


def build_agent(raw: Any, environment: AgentContext) -> tuple[Callable[..., Any], str]:
    """Return what acts for a specification, and what kind of specification it is."""
    if isinstance(raw, str) and raw in environment.agents:
        return environment.agents[raw], "builtin"
    if callable(raw):
        return raw, "callable"
    if not isinstance(raw, str):
        return lambda observation, configuration: raw, "constant"
    raise NotImplementedError(raw)
