"""The commands that look at the messages of agents, and their arguments.

Nothing but argparse is imported here: `parllel --help` imports every module that declares commands.
"""

from __future__ import annotations

import argparse
from typing import Any

from parllel.cli.run_commands import add_repeated


def add_commands(commands: Any) -> None:
    """Add `messaging tap`."""
    group = commands.add_parser("messaging", help="look at the messages of agents")
    nested = group.add_subparsers(required=True, metavar="COMMAND")
    _add_tap(nested)


def _add_tap(commands: Any) -> None:
    tap: argparse.ArgumentParser = commands.add_parser(
        "tap",
        help="print the messages of a run over Kafka",
        description="Print the messages of a run, as they are sent, until Ctrl-C; without --run, print the "
        "names of the runs. Nothing is changed. A line has the environment, its lease, epoch and "
        "step, the kind of message, sender and recipient, and the beginning of the payload. The exit "
        "status is 1 if fewer messages came than --count asks for.",
    )
    tap.set_defaults(call="parllel.distributed.messaging.kafka.tap_command:tap", extra="kafka")
    tap.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="of the broker")
    tap.add_argument("--run", metavar="NAME", help="`run` of its KafkaBroker")
    add_repeated(tap, "--env-id", "ID", "print those of this environment")
    tap.add_argument(
        "--kind",
        action="append",
        choices=("action", "info", "broadcast"),
        help="print those of this kind; may be given several times",
    )
    tap.add_argument("--json", action="store_true", help="print a line of JSON for each")
    tap.add_argument(
        "--from-start", action="store_true", help="begin with the oldest that the broker has"
    )
    tap.add_argument("--count", type=int, metavar="N", help="end after so many messages")
    tap.add_argument("--timeout", type=float, metavar="SECONDS", help="end after this time")
    tap.add_argument(
        "--config",
        metavar="FILE",
        help="settings of librdkafka, such as those of SASL and TLS: a line NAME=VALUE for each; other users "
        "must not be able to read it",
    )
