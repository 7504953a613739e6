"""A server of agents: what requests may ask for, and how they reach it.

build_server   JSON and protobuf        -->  Actions      what a request asks for, by name
Permissions    what agents it may name       Sessions     the agents that are held for clients
"""

from parllel.distributed.remote.server.actions import Actions
from parllel.distributed.remote.server.build_server import build_server

__all__ = [
    "Actions",
    "build_server",
]
