"""Agents that act in episodes, here or behind a URL, and the episodes that they play.

Raises:
    ImportError: if a library of the extra is not installed; names it.
"""

from parllel.remote import libraries as _libraries  # noqa: F401
from parllel.remote.agent import Agent
from parllel.remote.agent_context import AgentContext
from parllel.remote.agent_settings import AgentSettings
from parllel.remote.build_agent import build_agent, kind_of
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
from parllel.remote.http_client import HttpError
from parllel.remote.protobuf_agent import ProtobufAgent
from parllel.remote.remote_policy import RemoteError, RemotePolicy
from parllel.remote.url_agent import UrlAgent

__all__ = [
    "Agent",
    "AgentContext",
    "AgentFailure",
    "AgentSettings",
    "Environment",
    "EpisodeRunner",
    "Game",
    "HttpError",
    "Position",
    "ProtobufAgent",
    "RemoteError",
    "RemotePolicy",
    "Seat",
    "UrlAgent",
    "build_agent",
    "environments",
    "evaluate",
    "import_module_of_user",
    "kind_of",
    "make",
    "register",
]
