"""Agent server.

build_server   parses JSON and protobuf   -->  Actions       carries out requests by name
Permissions    agents a request may name       SessionStore  agents kept for clients
"""

from parllel.distributed.remote.server.actions import Actions
from parllel.distributed.remote.server.build_server import build_server

__all__ = [
    "Actions",
    "build_server",
]
