"""Declaration of `parllel messaging ...`, the commands for agents that exchange messages.

Imports only argparse, because `parllel --help` imports every module that declares commands.
"""

from __future__ import annotations

import argparse
from typing import Any

from parllel.cli.run_commands import add_repeated


def add_commands(commands: Any) -> None:
    """Add `messaging tap` and `messaging host`."""
    group = commands.add_parser(
        "messaging", help="inspect messages between agents, run agents elsewhere"
    )
    nested = group.add_subparsers(required=True, metavar="COMMAND")
    _add_tap(nested)
    _add_host(nested)


def _add_tap(commands: Any) -> None:
    tap: argparse.ArgumentParser = commands.add_parser(
        "tap",
        help="print the messages of a run over Kafka",
        description="Print the messages of a run as they are sent, until Ctrl-C. Without --run, print the "
        "names of the runs. Read-only. Each line shows the environment, its lease, epoch and step, the "
        "kind of message, sender and recipient, and the beginning of the payload. The exit status is 1 if "
        "fewer than --count messages arrive.",
    )
    tap.set_defaults(call="parllel.distributed.messaging.kafka.tap_command:tap", extra="kafka")
    _add_bootstrap(tap)
    tap.add_argument("--run", metavar="NAME", help="the `run` argument of its KafkaBroker")
    add_repeated(tap, "--env-id", "ID", "print only messages of this environment")
    tap.add_argument(
        "--kind",
        action="append",
        choices=("action", "info", "broadcast"),
        help="print only messages of this kind; may be given several times",
    )
    tap.add_argument("--json", action="store_true", help="print one JSON object per line")
    tap.add_argument(
        "--from-start", action="store_true", help="start with the oldest message on the broker"
    )
    tap.add_argument("--count", type=int, metavar="N", help="stop after N messages")
    tap.add_argument("--timeout", type=float, metavar="SECONDS", help="stop after this time")
    _add_config(tap)


def _add_host(commands: Any) -> None:
    host: argparse.ArgumentParser = commands.add_parser(
        "host",
        help="run some agents of a hierarchy, for environments of another process or machine",
        description="Run agents of a hierarchy for all environments of a run, until its environments are "
        "closed or Ctrl-C. The environments name the same agents in `hosted`. The exit status is 2 if the "
        "agents cannot be served.",
    )
    host.set_defaults(call="parllel.distributed.messaging.hosts.host_command:host", extra="kafka")
    host.add_argument(
        "factory",
        metavar="MODULE:FUNCTION",
        help="the function that makes the agents of an environment, as on the environment side; or "
        "file.py:function",
    )
    _add_bootstrap(host)
    host.add_argument(
        "--run",
        required=True,
        metavar="NAME",
        help="the `run` argument of the environments' KafkaBroker",
    )
    host.add_argument(
        "--agents",
        required=True,
        action="append",
        metavar="PATTERN",
        help='ids of the agents to run, such as "device_*"; may be given several times',
    )
    add_repeated(host, "--env-id", "PATTERN", "run the agents of these environments only")
    host.add_argument(
        "--name", help="name in errors; default: the machine's name and the process id"
    )
    host.add_argument(
        "--timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="limit for answers of the broker; default: 10",
    )
    host.add_argument(
        "--wait",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="end, with status 2, after this time without a sign of the environments; default: 60; `inf`: "
        "never",
    )
    host.add_argument(
        "--stay", action="store_true", help="wait for the next environments when these are closed"
    )
    host.add_argument(
        "--states",
        metavar="FILE",
        help="start with the agents' states in this file, if it exists, and save them at the end",
    )
    host.add_argument(
        "--partitions",
        type=int,
        default=1,
        metavar="N",
        help="the `partitions` argument of the environments' KafkaBroker; default: 1",
    )
    host.add_argument(
        "--key-file",
        metavar="FILE",
        help="file with the `key` argument of the environments' KafkaBroker in its first line; must not be "
        "readable by other users; default: the environment variable PARLLEL_MESSAGING_KEY",
    )
    _add_config(host)


def _add_bootstrap(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--bootstrap", required=True, metavar="HOST:PORT", help="address of the broker"
    )


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        metavar="FILE",
        help="settings of librdkafka, such as SASL and TLS, one NAME=VALUE per line; must not be readable "
        "by other users",
    )
