"""Declaration of `parllel messaging ...`, the commands that inspect messages between agents.

Imports only argparse, because `parllel --help` imports every module that declares commands.
"""

from __future__ import annotations

import argparse
from typing import Any

from parllel.cli.run_commands import add_repeated


def add_commands(commands: Any) -> None:
    """Add `messaging tap`."""
    group = commands.add_parser("messaging", help="inspect messages between agents")
    nested = group.add_subparsers(required=True, metavar="COMMAND")
    _add_tap(nested)


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
    tap.add_argument(
        "--bootstrap", required=True, metavar="HOST:PORT", help="address of the broker"
    )
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
    tap.add_argument(
        "--config",
        metavar="FILE",
        help="settings of librdkafka, such as SASL and TLS, one NAME=VALUE per line; must not be readable "
        "by other users",
    )
