"""The folder of a board: that of an experiment whose operators and seeds come by and by.

config.json         the operators, and the seed of each round, as they are added
board.json          cards, speed and autoplay, to go on with after the server was started again
telemetry/ logs/    as in every experiment
results.json        when the board is closed
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
    """A folder that is held until `close`.

    Args:
        base: where a new one is made.
        folder: an existing one, to go on with.

    Attributes:
        path: of the folder.
        state: what board.json holds; empty of a new folder.
        operators: all that have been played, as JSON values, by their ids.
        seeds: of the rounds so far.

    Raises:
        FileNotFoundError, ValueError: if `folder` is not that of a board.
        WrongStateError: if another process has it.
        OSError: if it cannot be made or written.
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
                f"{self.path}: expected the folder of a board, got one without board.json"
            )
        try:
            self.state = json.loads(board.read_text(encoding="utf-8"))
            self.operators = {str(one["operator_id"]): one for one in record.config["operators"]}
            self.seeds = [int(seed) for seed in record.config["seeds"]]
            self._read_rounds()
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{board}: damaged: {type(error).__name__}: {error}") from error

    def _read_rounds(self) -> None:
        """Add rounds that were played, and were not yet written when the process was killed."""
        for path in sorted(self.telemetry.glob(f"*_{EPISODES}.jsonl")):
            for record in read_telemetry(path):
                missing = record["episode"] + 1 - len(self.seeds)
                self.seeds += [record["seed"]] * missing

    def values(self) -> dict[str, Any]:
        """Return what config.json holds."""
        return {
            "name": NAME,
            "seeds": self.seeds,
            # Each card has as many as people begin.
            "episodes": None,
            "mode": "free",
            "comparisons": "first",
            "operators": list(self.operators.values()),
            "script": None,
        }

    def configs(self) -> list[AnyConfig]:
        """Return what the cards were, without the values of `variables`, which are kept nowhere.

        Raises:
            ValueError, TypeError: if board.json is damaged.
        """
        return [
            operator_from_json(_without_variables(one), "board.json")
            for one in self.state.get("cards", ())
        ]

    def variables_of(self, operator_id: str) -> list[str]:
        """Return the names of the variables that an operator, or the players of a game, had."""
        one = self.operators.get(operator_id, {})
        players = one.get("players", {}).values()
        return [name for part in (one, *players) for name in part.get("variables", ())]

    def run_id(self, operator_id: str) -> str:
        """Return the id of the telemetry and log of a card."""
        return run_id_of({"name": NAME}, operator_id)

    def write(self, state: Mapping[str, Any], seeds: Sequence[int]) -> None:
        """Write what the board is: its cards, and its rounds."""
        self.state, self.seeds = dict(state), list(seeds)
        for name, values in (("config.json", self.values()), ("board.json", self.state)):
            write_json(self.path / name, values)

    def has_played(self, operator_id: str) -> bool:
        """Return whether there are records of an operator or game."""
        path = self.telemetry / f"{self.run_id(operator_id)}_steps.jsonl"
        return path.exists() and path.stat().st_size > 0

    def remove(self) -> None:
        """Remove the folder, of a board that could not be made."""
        self._run.remove()

    def conclude(self) -> None:
        """Write results.json and the outcome of the run."""
        groups = read_results(self.path, self.values())
        write_json(self.path / "results.json", {"results": results_as_json(groups)})
        self._run.note_outcome(
            {
                "stopped_by": None,
                "episodes": sum(one.ended for group in groups for one in group.operators),
                "failed": sum(one.failed for group in groups for one in group.operators),
            }
        )

    def close(self) -> None:
        """Release the folder to other processes. Idempotent."""
        self._held.close()


def is_different_operator(operator: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether two operators, JSON values, are not the same but for what is in their variables."""
    return _without_variables(operator) != _without_variables(before)


def _without_variables(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in values.items() if name != "variables"}
    if "players" in found:
        players = found["players"].items()
        found["players"] = {player: _without_variables(one) for player, one in players}
    return found
