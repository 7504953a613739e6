"""Worker for a person at a terminal, who chooses by keys.

parllel operators worker human --env-id FrozenLake-v1 --episodes 3

Settings: "keys", action by key, such as {"w": 0, "left": 1}; "action_names", a list.

With --interactive, a `step` that contains an action is taken without asking; with --no-terminal too, every
step must contain one. At a terminal the environment is shown as text: by its render mode "ansi", if it has
one and no other was given; MiniGrid by its own text; others by their observation. Without a terminal it
renders pictures if it can.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from parllel.distributed.operators.protocol.protocol_streams import take_streams
from parllel.distributed.operators.workers.human_agent import HumanAgent
from parllel.distributed.operators.workers.terminal import Terminal, TerminalError
from parllel.distributed.operators.workers.text_view import TextView
from parllel.distributed.operators.workers.worker_main import (
    EnvFactory,
    LoadedWorker,
    run_worker,
    worker_parser,
)


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the agent that asks the person at the terminal.

    Raises:
        ValueError: for a --policy, and for invalid keys or names.
    """
    if given.policy is not None:
        raise ValueError(
            f"--policy: expected no policy, because a person decides, got {given.policy!r}"
        )
    keys = settings.get("keys")
    if keys is not None:
        _check_keys(keys)
    names = settings.get("action_names")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"settings: action_names: expected a list of names, got {names!r}")
    driver = take_streams().stdin if given.interactive else None

    def open_terminal() -> Terminal:
        if not given.terminal:
            raise TerminalError("this worker has no terminal; send an action with each step")
        return Terminal(given.tty, driver)

    if env_factory is None:
        return LoadedWorker(HumanAgent(open_terminal, keys, names=names), None)
    shown = TextView(env_factory, given.env_id, given.env_kwargs, prefers_text=given.terminal)
    return LoadedWorker(HumanAgent(open_terminal, keys, shown.view, names), shown.make)


def _check_keys(keys: Any) -> None:
    if not isinstance(keys, dict) or not keys:
        raise ValueError(f"settings: keys: expected an object from key to action, got {keys!r}")
    for key, action in keys.items():
        if isinstance(action, bool) or not isinstance(action, int):
            raise ValueError(f"settings: keys: {key!r}: expected a whole number, got {action!r}")


def main() -> int:
    """Run this worker."""
    parser = worker_parser("human_worker", "Ask a person to play, by the keys of a terminal.")
    parser.add_argument(
        "--tty", default="/dev/tty", help="path of the terminal; default that of the worker"
    )
    parser.add_argument(
        "--no-terminal",
        action="store_false",
        dest="terminal",
        help="with --interactive: every step contains its action",
    )
    return run_worker(parser, load, settings=("action_names", "keys"))


if __name__ == "__main__":
    sys.exit(main())
