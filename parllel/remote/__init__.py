"""Agents that act in episodes, here or behind a URL, and the episodes that they play.

Raises:
    ImportError: if a library of the extra is not installed; names it.
"""

try:
    import google.protobuf as _protobuf  # noqa: F401
    import httpx2 as _httpx2  # noqa: F401
    import jsonschema as _jsonschema  # noqa: F401
    import msgspec as _msgspec  # noqa: F401
    import starlette as _starlette  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in (
        *("google", "httpx2", "jsonschema", "msgspec", "starlette", "uvicorn"),
    ):
        raise
    raise ImportError(
        f"parllel.remote needs {error.name}: pip install 'parllel[remote]'"
    ) from error

from parllel.remote.agent import Agent
from parllel.remote.agent_context import AgentContext
from parllel.remote.build_agent import build_agent
from parllel.remote.environment import Environment, make
from parllel.remote.episode_runner import EpisodeRunner
from parllel.remote.evaluate import evaluate
from parllel.remote.failure import AgentFailure
from parllel.remote.games import (
    Game,
    Position,
    Seat,
    environments,
    import_module_of_user,
    register,
)

__all__ = [
    "Agent",
    "AgentContext",
    "AgentFailure",
    "Environment",
    "EpisodeRunner",
    "Game",
    "Position",
    "Seat",
    "build_agent",
    "environments",
    "evaluate",
    "import_module_of_user",
    "make",
    "register",
]
