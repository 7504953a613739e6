"""Run folder of a board: an experiment whose operators and seeds are added over time.

config.json         the operators, and the seed of each round, as they are added
board.json          cards, speed and autoplay, for continuing after a restart of the server
telemetry/ logs/    as in every experiment
results.json        written when the board is closed
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from parllel.distributed.operators.experiments.experiment_file import operator_from_json
from parllel.distributed.operators.experiments.experiment_folder import (
    KIND,
    read_results,
    run_id_of,
    write_json,
)
from parllel.distributed.operators.experiments.results import results_as_json
from parllel.distributed.operators.experiments.telemetry import EPISODES, read_telemetry
from parllel.distributed.operators.protocol.multi_agent_config import AnyConfig
from parllel.runs.run_folder import RunFolder
from parllel.types import Closeable

NAME = "board"


class BoardFolder(Closeable):
    """Run folder of a board, locked until `close`.

    Args:
        base: folder in which a new run folder is created.
        folder: an existing run folder to continue.

    Attributes:
        path: path of the run folder.
        state: contents of board.json; empty for a new folder.
        operators: all operators that have been played, as JSON values keyed by id.
        seeds: seeds of the rounds so far.

    Raises:
        FileNotFoundError, ValueError: if `folder` is not the folder of a board.
        WrongStateError: if another process uses the folder.
        OSError: if the folder cannot be created or written.
    """

    def __init__(
        self, base: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None
    ) -> None:
        self._run = RunFolder(base, NAME) if folder is None else RunFolder.open(folder)
        self.path = self._run.path
        self.telemetry = self.path / "telemetry"
        self.state: dict[str, Any] = {}
        self.operators: dict[str, dict[str, Any]] = {}
        self.seeds: list[int] = []
        if folder is not None:
            self._read()
        self._held = ExitStack()
        self._held.enter_context(self._run.lock())
        if folder is None:
            try:
                self._run.write_record(None, self.values(), kind=KIND)
            except BaseException:
                self._held.close()
                self._run.remove()
                raise

    def _read(self) -> None:
        record = self._run.read_record()
        board = self.path / "board.json"
        if record.kind != KIND or not board.is_file():
            raise ValueError(
                f"{self.path}: expected the folder of a board, but it has no board.json"
            )
        try:
            self.state = json.loads(board.read_text(encoding="utf-8"))
            operators = record.config["operators"]
            self.operators = {str(values["operator_id"]): values for values in operators}
            self.seeds = [int(seed) for seed in record.config["seeds"]]
            self._read_rounds()
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{board}: damaged: {type(error).__name__}: {error}") from error

    def _read_rounds(self) -> None:
        """Add rounds that were played but not yet written when the process was killed."""
        for path in sorted(self.telemetry.glob(f"*_{EPISODES}.jsonl")):
            for record in read_telemetry(path):
                missing = record["episode"] + 1 - len(self.seeds)
                self.seeds += [record["seed"]] * missing

    def values(self) -> dict[str, Any]:
        """Return the contents of config.json."""
        return {
            "name": NAME,
            "seeds": self.seeds,
            # Unlimited: each card plays as many as people start.
            "episodes": None,
            "mode": "free",
            "comparisons": "first",
            "operators": list(self.operators.values()),
            "script": None,
        }

    def configs(self) -> list[AnyConfig]:
        """Return the configurations of the cards, without the values of `variables`, which are not stored.

        Raises:
            ValueError, TypeError: if board.json is damaged.
        """
        return [
            operator_from_json(_without_variables(values), "board.json")
            for values in self.state.get("cards", ())
        ]

    def variables_of(self, operator_id: str) -> list[str]:
        """Return the names of the variables of an operator, or of a game's players."""
        config = self.operators.get(operator_id, {})
        players = config.get("players", {}).values()
        return [name for part in (config, *players) for name in part.get("variables", ())]

    def run_id(self, operator_id: str) -> str:
        """Return the run id of a card's telemetry and log."""
        return run_id_of({"name": NAME}, operator_id)

    def write(self, state: Mapping[str, Any], seeds: Sequence[int]) -> None:
        """Write the cards and rounds of the board."""
        self.state, self.seeds = dict(state), list(seeds)
        for name, values in (("config.json", self.values()), ("board.json", self.state)):
            write_json(self.path / name, values)

    def has_played(self, operator_id: str) -> bool:
        """Return whether an operator or game has recorded steps."""
        path = self.telemetry / f"{self.run_id(operator_id)}_steps.jsonl"
        return path.exists() and path.stat().st_size > 0

    def remove(self) -> None:
        """Remove the folder. Used when creating the board failed."""
        self._run.remove()

    def conclude(self) -> None:
        """Write results.json and the outcome of the run."""
        groups = read_results(self.path, self.values())
        write_json(self.path / "results.json", {"results": results_as_json(groups)})
        self._run.note_outcome(
            {
                "stopped_by": None,
                "episodes": sum(result.ended for group in groups for result in group.operators),
                "failed": sum(result.failed for group in groups for result in group.operators),
            }
        )

    def close(self) -> None:
        """Release the lock on the folder. Idempotent."""
        self._held.close()


def is_different_operator(operator: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether two operators, as JSON values, differ in anything but the values of variables."""
    return _without_variables(operator) != _without_variables(before)


def _without_variables(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in values.items() if name != "variables"}
    if "players" in found:
        players = found["players"].items()
        found["players"] = {player: _without_variables(config) for player, config in players}
    return found
