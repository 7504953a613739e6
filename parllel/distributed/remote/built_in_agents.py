"""The built-in agents of a game, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class BuiltInAgents(Mapping[str, Callable[..., Any]]):
    """Return an agent by its name; of a class an instance each time, which no other agent shares."""

    def __init__(self, agents: Mapping[str, Callable[..., Any]]) -> None:
        self._agents = agents

    def __getitem__(self, name: str) -> Callable[..., Any]:
        agent = self._agents[name]
        return agent() if isinstance(agent, type) else agent

    def __contains__(self, name: object) -> bool:
        return name in self._agents

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)
