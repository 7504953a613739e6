"""Episodes between agents, which act in this process, in separate processes or on servers.

Raises:
    ImportError: if a library of the extra `remote` is not installed; names it.
"""

from parllel.distributed.remote import libraries as _libraries  # noqa: F401
from parllel.distributed.remote.agent import Agent
from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.build_agent import build_agent
from parllel.distributed.remote.environment import make
from parllel.distributed.remote.evaluate import evaluate
from parllel.distributed.remote.failure import AgentFailure
from parllel.distributed.remote.games.game import Game
from parllel.distributed.remote.games.position import PlayerState, Position
from parllel.distributed.remote.games.registry import environments, register
from parllel.distributed.remote.protobuf_agent import ProtobufAgent
from parllel.distributed.remote.remote_policy import RemoteError, RemotePolicy
from parllel.distributed.remote.url_agent import UrlAgent
from parllel.distributed.web.http_client import HttpError

__all__ = [
    "Agent",
    "AgentFailure",
    "AgentSettings",
    "Game",
    "HttpError",
    "PlayerState",
    "Position",
    "ProtobufAgent",
    "RemoteError",
    "RemotePolicy",
    "UrlAgent",
    "build_agent",
    "environments",
    "evaluate",
    "make",
    "register",
]
