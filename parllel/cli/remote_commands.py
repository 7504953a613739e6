"""Declaration of `parllel remote ...`, the commands that play episodes between agents and serve agents.

Imports only argparse, because `parllel --help` imports every module that declares commands.
"""

from __future__ import annotations

import argparse
from typing import Any

from parllel.cli.run_commands import add_repeated, add_server, add_trust

_AGENT = (
    "a built-in agent's name, file.py or file.py:name, folder of a run or with a main.py, zip or tar.gz "
    "file with a main.py, http://... of an agent server, "
    'or JSON: {"type": "proto", "url": ...}, a constant action, or null for no agent'
)
_EXECUTES = (
    "Files are executed, as are the scripts of run folders. A run's script that is outside the current "
    "folder, or came with the run, is refused unless --trust is given."
)


def add_commands(commands: Any) -> None:
    """Add `remote run`, `evaluate`, `step`, `load`, `list` and `serve`."""
    group = commands.add_parser(
        "remote", help="play episodes between agents and serve agents over HTTP"
    )
    nested = group.add_subparsers(required=True, metavar="COMMAND")
    _add_run(nested)
    _add_evaluate(nested)
    _add_step(nested)
    _add_load(nested)
    _add_list(nested)
    _add_serve(nested)


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="play an episode between agents",
        description=f"Play an episode between agents and print it. {_EXECUTES} The exit status is 1 if an "
        "agent failed, or runTimeout stopped the episode.",
    )
    _call(run, "run")
    _add_environment(run)
    _add_agents(run)
    add_trust(run)
    _add_start(run)
    _add_render(run)
    _add_output(run)


def _add_evaluate(commands: Any) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="play several episodes between agents and print the rewards",
        description=f"Play episodes between agents and print each episode's rewards. {_EXECUTES} The exit "
        "status is 1 if an agent failed, or runTimeout stopped an episode.",
    )
    _call(evaluate, "evaluate")
    _add_environment(evaluate)
    _add_agents(evaluate)
    add_trust(evaluate)
    _add_start(evaluate)
    evaluate.add_argument("--episodes", type=int, default=1, metavar="N", help="default: 1")
    evaluate.add_argument("--statuses", action="store_true", help="also print the agents' statuses")
    evaluate.add_argument("--out", metavar="FILE", help="write the result to FILE, not to stdout")


def _add_step(commands: Any) -> None:
    step = commands.add_parser(
        "step",
        help="advance an episode by one step",
        description="Print the state after an episode's last one, given actions or agents that choose them. "
        f"{_EXECUTES}",
    )
    _call(step, "step")
    _add_environment(step)
    choice = step.add_mutually_exclusive_group(required=True)
    choice.add_argument("--actions", metavar="JSON", help="list of one action per agent")
    _add_agents(choice)
    add_trust(step)
    _add_start(step)
    step.add_argument("--in", dest="in_file", metavar="FILE", help="episode written by `run`")
    step.add_argument("--state", metavar="JSON", help="last state, instead of --steps")
    step.add_argument("--out", metavar="FILE", help="write the result to FILE, not to stdout")


def _add_load(commands: Any) -> None:
    load = commands.add_parser("load", help="show a saved episode")
    _call(load, "load")
    load.add_argument("--in", dest="in_file", metavar="FILE", help="episode written by `run`")
    _add_environment(load, required=False)
    _add_start(load)
    _add_render(load)
    _add_output(load, log_help="read the agents' logs from FILE")


def _add_list(commands: Any) -> None:
    names = commands.add_parser("list", help="list the available environments")
    _call(names, "list_environments")
    _add_import(names)


def _add_serve(commands: Any) -> None:
    server = commands.add_parser(
        "serve",
        help="serve agents over HTTP",
        description="Serve agents over HTTP until SIGTERM or Ctrl-C. Flags decide which agents requests may "
        f"name: by default, only built-in agents and constant actions. For --agent: {_EXECUTES}",
    )
    server.set_defaults(call="parllel.distributed.remote.server.serve_command:run", extra="remote")
    token = "file with the token that clients must send; default: the environment variable PARLLEL_TOKEN"
    add_server(server, 8000, token, "clients")
    server.add_argument(
        "--agent", metavar="SPEC", help=f"agent to load at the start, for --environment: {_AGENT}"
    )
    server.add_argument("--environment", metavar="NAME", help="environment of --agent")
    add_trust(server)
    server.add_argument("--configuration", metavar="JSON", help="configuration of --environment")
    _add_permissions(server)
    _add_limits(server)
    _add_agent_env(server)
    _add_import(server)
    _add_debug(server)
    server.add_argument(
        "--agent-logs",
        action="store_true",
        help="send agents' output and the tracebacks of their errors to clients",
    )
    server.add_argument("--access-log", action="store_true", help="log each request to stderr")


def _add_permissions(server: argparse.ArgumentParser) -> None:
    server.add_argument(
        "--agent-root",
        metavar="DIR",
        help="allow requests to name files and run folders below DIR, which are executed",
    )
    server.add_argument(
        "--allow-source", action="store_true", help="allow requests to send Python source"
    )
    server.add_argument(
        "--allow-url", action="store_true", help="allow requests to name agents by URL"
    )


def _add_limits(server: argparse.ArgumentParser) -> None:
    server.add_argument(
        "--max-body-bytes",
        type=int,
        default=1 << 20,
        metavar="BYTES",
        help="size of a request; default: 1 MiB",
    )
    server.add_argument(
        "--max-sessions",
        type=int,
        default=64,
        metavar="N",
        help="agents loaded at the same time; default: 64",
    )
    server.add_argument(
        "--idle",
        type=float,
        default=3600,
        metavar="SECONDS",
        help="close agents unused for this long; default: 3600",
    )
    server.add_argument(
        "--memory", type=int, metavar="MIB", help="memory limit of an agent in a separate process"
    )
    server.add_argument("--rate", type=float, metavar="N", help="requests per second and client")


def _call(parser: argparse.ArgumentParser, function: str) -> None:
    parser.set_defaults(
        call=f"parllel.distributed.remote.server.episode_commands:{function}", extra="remote"
    )


def _add_environment(parser: Any, *, required: bool = True) -> None:
    parser.add_argument(
        "--environment",
        required=required,
        metavar="NAME",
        help="a name from `parllel remote list`, or gymnasium/NAME",
    )


def _add_agents(parser: Any) -> None:
    parser.add_argument(
        "--agents", nargs="*", default=[], metavar="SPEC", help=f"each of them: {_AGENT}"
    )


def _add_start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--configuration", metavar="JSON", help="configuration of the environment")
    parser.add_argument("--info", metavar="JSON", help="metadata to store with the episode")
    parser.add_argument("--steps", metavar="JSON", help="steps of the episode so far")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token for agents at URLs without one; default: the variable PARLLEL_TOKEN",
    )
    _add_agent_env(parser)
    _add_import(parser)
    _add_debug(parser)


def _add_render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--render",
        default="json",
        metavar="MODE",
        help='json, ansi or html, or {"mode": ...}; default: json',
    )


def _add_output(
    parser: argparse.ArgumentParser, log_help: str = "write the agents' logs to FILE"
) -> None:
    parser.add_argument("--out", metavar="FILE", help="write the result to FILE, not to stdout")
    parser.add_argument("--log", metavar="FILE", help=log_help)


def _add_agent_env(parser: argparse.ArgumentParser) -> None:
    meaning = "pass this environment variable, such as OPENAI_API_KEY, to agents"
    add_repeated(parser, "--agent-env", "NAME", meaning)


def _add_import(parser: argparse.ArgumentParser) -> None:
    meaning = "import this module or file.py, which registers environments"
    add_repeated(parser, "--import", "MODULE", meaning, dest="modules")


def _add_debug(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--debug",
        nargs="?",
        const="true",
        default="false",
        metavar="true|false",
        help="repeat agents' output on stderr",
    )
