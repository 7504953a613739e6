"""`parllel remote serve`: a server of agents and of episodes between them, until a signal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from parllel.distributed.remote.agent_settings import AgentSettings, confinement_lines
from parllel.distributed.remote.games.registry import import_module_of_user
from parllel.distributed.remote.server.actions import Actions
from parllel.distributed.remote.server.build_server import build_server
from parllel.distributed.remote.server.command_values import (
    agent_spec,
    agent_variables,
    check_agent,
    flag_value,
    json_value,
)
from parllel.distributed.remote.server.permissions import Permissions
from parllel.distributed.web.server_settings import ServerSettings
from parllel.distributed.web.token_file import read_token
from parllel.distributed.web.web_server import WebServer
from parllel.system.processes.confinement import hide_from_others


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit status."""
    if (arguments.agent is None) != (arguments.environment is None):
        raise ValueError("expected either both --agent SPEC and --environment NAME, or neither")
    for flag in ("max_sessions", "idle", "memory"):
        value = getattr(arguments, flag)
        if value is not None and not value > 0:
            raise ValueError(f"--{flag.replace('_', '-')}: expected more than 0, got {value:g}")
    settings = ServerSettings(
        host=arguments.host,
        port=arguments.port,
        token=read_token(arguments.token_file),
        allowed_hosts=tuple(arguments.allow_host),
        max_body_bytes=arguments.max_body_bytes,
        requests_per_s=arguments.rate,
        # One for each agent, which may never answer, and as many for other requests.
        handler_threads=2 * arguments.max_sessions,
        access_log=arguments.access_log,
    )
    permissions = Permissions(
        None if arguments.agent_root is None else Path(arguments.agent_root),
        allow_source=arguments.allow_source,
        allow_url=arguments.allow_url,
    )
    spec = None if arguments.agent is None else agent_spec(arguments.agent)
    check_agent(spec, trusted=arguments.trust)
    for module in arguments.modules:
        import_module_of_user(module)
    agent_settings = AgentSettings(
        memory_limit_bytes=None if arguments.memory is None else arguments.memory * 2**20,
        variables=agent_variables(arguments),
        writable=(),
    )
    with Actions(
        permissions,
        sessions=arguments.max_sessions,
        idle_s=arguments.idle,
        settings=agent_settings,
        debug=flag_value(arguments.debug, "--debug"),
        logs=arguments.agent_logs,
    ) as actions:
        # Before the agent is built, which may take long: a port in use is reported at once.
        server = WebServer(build_server(settings, actions))
        # Agents must not read this process's memory: it contains the token and environment variables.
        hidden = hide_from_others()
        try:
            if arguments.agent is not None:
                configuration = json_value(arguments.configuration, "--configuration", dict)
                actions.load_agent(spec, arguments.environment, configuration)
            executes = permissions.agent_root is not None or permissions.allow_source
            lines = confinement_lines(hidden=hidden) if executes or spec is not None else []
            server.run(lambda: _announce(lines, server))
        finally:
            server.close()
    return 0


def _announce(lines: list[str], server: WebServer) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)
    server.announce()
