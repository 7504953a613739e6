"""Command line shared by all our workers.

--interactive       answer commands on standard input until `stop`
otherwise, batch    play an episode for each seed; write telemetry, and records of episodes to standard output
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium as gym

from parllel.distributed.operators.protocol.protocol_streams import take_streams
from parllel.distributed.operators.workers.serving import load_failed, serve
from parllel.policies.env_names import env_named
from parllel.seeding import seeds_named
from parllel.system.start_program import start_program

EnvFactory = Callable[[], gym.Env[Any, Any]]


class LoadedWorker(NamedTuple):
    """What a worker serves: an agent, and optionally an environment.

    Attributes:
        agent: the agent, as for `serve`.
        env_factory: function that makes the environment. None for a worker that only plays games.
    """

    agent: Any
    env_factory: EnvFactory | None


# Loads what a worker serves, given its arguments, its settings, and the factory of the environment.
Load = Callable[[argparse.Namespace, dict[str, Any], EnvFactory | None], LoadedWorker]


def worker_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments common to all workers."""
    prog = f"parllel operators worker {name.removesuffix('_worker')}"
    parser = argparse.ArgumentParser(prog, description=description)
    add = parser.add_argument
    add("--interactive", action="store_true", help="answer commands on standard input")
    add("--run-id", help="default: the variable OPERATOR_RUN_ID")
    add("--env-id", help="an id of gymnasium, module:id, or file.py:function")
    add("--env-kwargs", type=_json_object, default={}, metavar="JSON", help="of the environment")
    add("--policy", help="the policy to play with")
    add("--settings", type=_json_object, default={}, metavar="JSON", help="of this worker")
    add("--max-steps", type=_at_least_one, metavar="N", help="truncate episodes after N steps")
    batch = parser.add_argument_group("without --interactive")
    batch.add_argument(
        "--seeds", type=seeds_of, metavar="0-49", help="or 3,5,8-10; one episode each"
    )
    batch.add_argument("--episodes", type=_at_least_one, metavar="N", help="default 1")
    batch.add_argument(
        "--seed", type=_seed, metavar="S", help="of the first of N episodes; default 0"
    )
    batch.add_argument(
        "--telemetry-dir", help="default: the variable TELEMETRY_DIR, else var/operators/telemetry"
    )
    batch.add_argument(
        "--min-understood",
        type=_share,
        default=0.5,
        metavar="PART",
        help="of a language model's decisions, from 0 to 1; if less was understood the exit status is 1; "
        "default: 0.5",
    )
    return parser


def run_worker(
    parser: argparse.ArgumentParser,
    load: Load,
    *,
    settings: Collection[str] = (),
    arguments: Sequence[str] | None = None,
) -> int:
    """Serve, or play a batch, as the command line says. Returns the exit status.

    A failure to load is reported as "Failed to load policy: ..."; in a batch, on standard error.

    Args:
        parser: from `worker_parser`.
        load: function that loads the agent, see `Load`.
        settings: names of the settings that `load` accepts.
        arguments: command-line arguments. Default: the arguments of this process.
    """
    if arguments is None:
        start_program()
    given = parser.parse_args(arguments)
    if given.seeds is not None and (given.episodes is not None or given.seed is not None):
        parser.error("--seeds: cannot be combined with --episodes or --seed")
    # First of all: imports and scripts below may print.
    take_streams()
    what = "environment"
    try:
        env_factory = _env_factory(given)
        what = "policy"
        _check_settings(given.settings, settings)
        loaded = load(given, given.settings, env_factory)
    except Exception as error:
        report: Callable[..., int] = load_failed if given.interactive else _batch().batch_failed
        return report(error, what)
    if given.interactive:
        env = given.env_id
        options = {"run_id": given.run_id, "env_id": env, "max_steps": given.max_steps}
        return serve(loaded.agent, loaded.env_factory, **options)
    if loaded.env_factory is None:
        parser.error("--env-id: expected the name of an environment")
    first = given.seed or 0
    seeds = given.seeds or range(first, first + (given.episodes or 1))
    status: int = _batch().play_batch(
        loaded.agent,
        loaded.env_factory,
        seeds,
        run_id=given.run_id,
        env_id=given.env_id,
        max_steps=given.max_steps,
        telemetry_dir=given.telemetry_dir,
        min_understood=given.min_understood,
    )
    return status


def run_named(arguments: argparse.Namespace) -> int:
    """Run a worker by its name, as `parllel operators worker NAME ...` does."""
    name = f"{arguments.name}_worker"
    # As its own command line, whose options and messages name the worker.
    sys.argv = [name, *arguments.options]
    module = importlib.import_module(f"parllel.distributed.operators.workers.{name}")
    status: int = module.main()
    return status


def _batch() -> ModuleType:
    # Imported here: it writes telemetry, which interactive workers do not.
    from parllel.distributed.operators.workers import batch

    return batch


def seeds_of(text: str) -> list[int]:
    """Parse the seeds of a command line, see `seeds_named`.

    Raises:
        argparse.ArgumentTypeError: for malformed text, or too many seeds.
    """
    try:
        return seeds_named(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _check_settings(given: dict[str, Any], known: Collection[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        expected = ", ".join(sorted(known)) or "none"
        raise ValueError(f"settings: expected names from {expected}, got {unknown}")


def _env_factory(given: argparse.Namespace) -> EnvFactory | None:
    if given.env_id is None:
        return None
    return env_named(given.env_id, given.env_kwargs)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"expected a JSON object, got {text!r}")
    return value


def _int_from(least: int, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least {least}, got {text!r}"
        )
    return number


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text!r}")
    return share


_at_least_one = partial(_int_from, 1)
_seed = partial(_int_from, 0)
