"""Files of experiments: Python that defines `experiment`, or TOML with the same names.

    # compare.py                                          # compare.toml
    from parllel.distributed.operators import ...                     name = "compare"
                                                          seeds = 0
    def experiment(episodes: int = 50):                   episodes = 50
        return Experiment(
            "compare",                                    [[operators]]
            [OperatorConfig(                              operator_type = "baseline"
                "baseline", "random", "CartPole-v1",      operator_id = "random"
                policy="random",                          env_id = "CartPole-v1"
            )],                                           policy = "random"
            seeds=0, episodes=episodes,
        )                                                 # a game has [operators.players.NAME]

The function may also be a context manager (contextlib.contextmanager) that yields the experiment. What it has
started then lives until the experiment is over.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from parllel.distributed.operators.experiments.experiment import Experiment
from parllel.distributed.operators.experiments.experiment_seeds import seeds_from_json
from parllel.distributed.operators.protocol.multi_agent_config import MultiAgentConfig
from parllel.distributed.operators.protocol.operator_config import OperatorConfig
from parllel.errors import install_command
from parllel.runs.config import change_config, nearest_key
from parllel.runs.reference import import_script

NAME = "experiment"


@contextmanager
def load_experiment(
    path: str | os.PathLike[str], changes: Sequence[str] = ()
) -> Iterator[Experiment]:
    """Execute or read a file, and yield its experiment.

    Args:
        path: path of a .py or .toml file.
        changes: strings "NAME=VALUE", each for a parameter of the function `experiment` or a value
            of the TOML file. The value is parsed as the type of the default. If there is no
            default, or it is None, the value is parsed as JSON where possible.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError, TypeError: if the file defines no experiment, or an invalid one. Names the file.
        ImportError: for TOML under Python 3.10 if tomli is not installed. Names the extra.
    """
    path = Path(path)
    if path.suffix not in (".py", ".toml"):
        raise ValueError(f"{path}: expected a .py or a .toml file that defines an experiment")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    named = _named(changes)
    if path.suffix == ".toml":
        yield _from_toml(path, named)
        return
    with _from_python(path, named) as experiment:
        yield experiment


def experiment_from_json(values: Mapping[str, Any], where: str = "experiment") -> Experiment:
    """Return the experiment described by the values of a file.

    Raises:
        ValueError, TypeError: for an unknown name, which the message shows with the nearest known
            one, or an invalid value.
    """
    known = [field.name for field in fields(Experiment) if field.init]
    given = _known(values, known, where)
    operators = given.get("operators", [])
    if not isinstance(operators, list) or not all(isinstance(o, Mapping) for o in operators):
        raise TypeError(f"{where}: operators: expected a list of tables, got {operators!r}")
    given["operators"] = [operator_from_json(operator, where) for operator in operators]
    for name in ("name", "seeds"):
        if name not in given:
            raise ValueError(f"{where}: {name}: expected a value, got none")
    given["seeds"] = seeds_from_json(given["seeds"])
    return Experiment(**given)


def operator_from_json(values: Mapping[str, Any], where: str) -> OperatorConfig | MultiAgentConfig:
    """Return an operator from its fields as JSON values, or a game if they contain "players".

    where: source of the values, for error messages.

    Raises:
        TypeError, ValueError: for a field that is unknown, missing or invalid.
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{where}: expected the fields of an operator, got {values!r:.100}")
    where = f"{where}: operator {values.get('operator_id', '?')!r}"
    is_game = "players" in values
    kind: Any = MultiAgentConfig if is_game else OperatorConfig
    needed = ("operator_id", "env_id", "players") if is_game else ("operator_type", "operator_id")
    given = _known(values, [field.name for field in fields(kind)], where)
    for name in needed:
        if name not in given:
            raise ValueError(f"{where}: {name}: expected a value, got none")
    if is_game:
        if not isinstance(given["players"], Mapping):
            raise TypeError(f"{where}: players: expected tables, got {given['players']!r}")
        given["players"] = {
            player: operator_from_json(player_values, where)
            for player, player_values in given["players"].items()
        }
    return kind(**given)  # type: ignore[no-any-return]


def _known(values: Mapping[str, Any], known: Sequence[str], where: str) -> dict[str, Any]:
    for name in values:
        if name not in known:
            near = nearest_key(name, dict.fromkeys(known))
            meant = f"; did you mean {near!r}?" if near else f"; known names: {', '.join(known)}"
            raise ValueError(f"{where}: unknown name {name!r}{meant}")
    # TOML has no null: what is None elsewhere is absent there, so both mean the default.
    return {name: value for name, value in values.items() if value is not None}


def _named(changes: Sequence[str]) -> dict[str, str]:
    named = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not name:
            raise ValueError(f"--set: expected NAME=VALUE, got {change!r}")
        named[name] = value
    return named


# ---------------------------------------------------------------------- TOML


def _from_toml(path: Path, changes: Mapping[str, str]) -> Experiment:
    try:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
    except ImportError as error:
        raise ImportError(f"{path}: TOML needs tomli: {install_command('operators')}") from error
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None
    for name, value in changes.items():
        values[name] = _parsed(value)
    return experiment_from_json(values, str(path))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---------------------------------------------------------------------- Python


@contextmanager
def _from_python(path: Path, changes: Mapping[str, str]) -> Iterator[Experiment]:
    found = getattr(import_script(path), NAME, None)
    if found is None:
        raise ValueError(
            f"{path}: expected {NAME!r} to be defined, as an Experiment, or a function that returns or "
            "yields one"
        )
    if isinstance(found, Experiment) and changes:
        raise ValueError(
            f"{path}: --set {next(iter(changes))}: expected {NAME!r} to be a function with this parameter, "
            "got an Experiment"
        )
    if callable(found) and not isinstance(found, type):
        found = found(**_arguments(path, found, changes))
    if isinstance(found, AbstractContextManager):
        with found as experiment:
            yield _checked(path, experiment)
        return
    yield _checked(path, found)


def _arguments(path: Path, function: Any, changes: Mapping[str, str]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in changes:
            raise ValueError(f"{path}: {NAME}() requires {name!r}; use --set {name}=VALUE")
    arguments: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in parameters:
            near = nearest_key(name, dict.fromkeys(parameters))
            meant = f"; did you mean {near!r}?" if near else ""
            raise ValueError(f"{path}: --set {name}: {NAME}() has no such parameter{meant}")
        default = parameters[name].default
        if default is None or default is parameters[name].empty:
            arguments[name] = _parsed(value)
        else:
            arguments.update(change_config({name: default}, {name: value}))
    return arguments


def _checked(path: Path, found: Any) -> Experiment:
    if not isinstance(found, Experiment):
        raise TypeError(f"{path}: {NAME}: expected an Experiment, got {found!r:.100}")
    return found
