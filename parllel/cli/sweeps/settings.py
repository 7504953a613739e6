"""Settings of a sweep: `ppo.learning_rate=1e-4,3e-4 seed=0-4` to one set of values per run."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from parllel.runs.config import change_config, config_values

SEED = "seed"  # key, or last part of a key, whose values are averaged over
RUN = "run"  # key of the name of a run that is not named by its values
INTERVAL = re.compile(r"(log|float|int|logint):(.+?)\.\.(.+)")  # what --optuna draws from
_RANGE = re.compile(r"(-?\d+)-(-?\d+)")
_MAX_NAME = 200  # bytes; file systems accept 255, and names of logs and temporary files are longer
_MAX_RUNS = 100_000


@dataclass(frozen=True)
class RunSettings:
    """Settings of one run.

    Attributes:
        name: name of the run's folder, made of the values.
        changes: values by key, as text for `change_config`.
        values: values by key as JSON values, without those that are the same by default for all runs.
        config: all values of the config, as JSON values.
    """

    name: str
    changes: dict[str, str]
    values: dict[str, Any]
    config: dict[str, Any]

    @property
    def group(self) -> dict[str, Any]:
        """The values without seeds, which all runs of one mean share.

        A run that is not named by its values is a group of its own; its name is the first value.
        """
        group = {key: value for key, value in self.values.items() if not is_seed(key)}
        return group if self.name == name_of(self.values) else {RUN: self.name, **group}


def is_seed(key: str) -> bool:
    """Return whether the values of a key are averaged over."""
    return key.rpartition(".")[2] == SEED


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `KEY=VALUES` arguments.

    Raises:
        ValueError: for no arguments, an argument that is not such a pair, or a repeated key.
    """
    if not pairs:
        raise ValueError("expected at least one KEY=VALUES, such as seed=0-4")
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise ValueError(f"expected KEY=VALUES, such as seed=0-4, got {pair!r}")
        if key in found:
            raise ValueError(f"{key}: expected one list of values, got {found[key]!r} and {text!r}")
        found[key] = text
    return found


def split_values(key: str, text: str, *, ranges: bool = True) -> list[str]:
    """Split a list of values: `1e-4,3e-4`, `0-4`, `0-2,7` or `[64,64],[32]`.

    ranges: whether `0-4` is a range rather than text.

    Raises:
        ValueError: for an empty list, value or range. The message names the key.
    """
    found = []
    for part in _split_commas(text):
        part = part.strip()
        if not part:
            raise ValueError(f"{key}: expected values separated by commas, got {text!r}")
        match = _RANGE.fullmatch(part) if ranges else None
        if match is None:
            found.append(part)
            continue
        first, last = int(match[1]), int(match[2])
        if last < first:
            raise ValueError(f"{key}: the range {part} is empty, as {last} is less than {first}")
        if last - first >= _MAX_RUNS:
            raise ValueError(f"{key}: the range {part} has more than {_MAX_RUNS:,} values")
        found += [str(value) for value in range(first, last + 1)]
    return found


def _split_commas(text: str) -> list[str]:
    """Split at commas that are not in brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def all_settings(
    config: Any, pairs: Mapping[str, str], fixed: Mapping[str, str] | None = None
) -> list[RunSettings]:
    """Return the settings of each run: every combination of values, the last key varying fastest.

    Args:
        config: config with the values that the sweep does not set.
        pairs: lists of values by key.
        fixed: changes of all runs that are not part of their names.

    Raises:
        ValueError: for an unknown key (suggests the nearest one), a value that the config rejects, a list
            that names a value twice, or too many combinations.
    """
    known = config_values(config)
    lists = {
        key: split_values(key, text, ranges=not isinstance(value_at(known, key), str))
        for key, text in pairs.items()
    }
    n = 1
    for values in lists.values():
        n *= len(values)
    if n > _MAX_RUNS:
        raise ValueError(f"expected at most {_MAX_RUNS:,} runs, got {n:,} combinations of values")
    found: dict[str, RunSettings] = {}
    for texts in itertools.product(*lists.values()):
        run = run_settings(config, dict(zip(lists, texts, strict=True)), fixed)
        if run.name in found:
            other = found[run.name].changes
            key = next(
                key for key in lists if run.changes[key] != other[key] or _repeats(lists[key])
            )
            raise ValueError(
                f"{key}: the list {pairs[key]} names the value {run.changes[key]} twice"
            )
        found[run.name] = run
    return list(found.values())


def run_settings(
    config: Any,
    changes: Mapping[str, str],
    fixed: Mapping[str, str] | None = None,
    name: str | None = None,
) -> RunSettings:
    """Return the settings of one run.

    fixed: changes that are not part of its name.
    name: name of the run's folder; default: made of the values.

    Raises:
        ValueError: for an unknown key or a value that the config rejects.
    """
    everything = {**(fixed or {}), **changes}
    try:
        values = config_values(change_config(config, everything))
    except Exception as error:  # a config may check its values, with errors of any kind
        raise ValueError(str(error) or f"{everything}: {type(error).__name__}") from error
    chosen = {key: value_at(values, key) for key in changes}
    return RunSettings(name or name_of(chosen), everything, chosen, values)


def _repeats(values: Sequence[str]) -> bool:
    return len(set(values)) < len(values)


def name_of(values: Mapping[str, Any]) -> str:
    """Return the name of a run's folder: `ppo.learning_rate=0.0001,seed=3`.

    Different values have different names.
    """
    # Quoted, as a value may contain a slash.
    name = ",".join(f"{key}={quote(text_of(value), safe='[]+, ')}" for key, value in values.items())
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[: _MAX_NAME - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def text_of(value: Any) -> str:
    """Return a value as it is written on the command line."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def value_at(values: Any, key: str) -> Any:
    """Return the value at the path of a key; None if there is none."""
    for name in key.split("."):
        values = values.get(name) if isinstance(values, Mapping) else None
    return values
