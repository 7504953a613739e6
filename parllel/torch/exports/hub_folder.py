"""A trained policy as a folder that the Hugging Face Hub takes: files, config.json and a model card."""

from __future__ import annotations

import csv
import json
import math
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parllel.runs.run_folder import RunFolder
from parllel.torch.exports.export_policy import export_policy
from parllel.torch.exports.file_formats import format_of
from parllel.torch.exports.model_card import model_card
from parllel.torch.exports.policy_module import TrainedPolicy

FILES = ("policy.onnx", "policy.pt")
_EVALUATION = "evaluation/"
# Entries of versions.json that speak of the machine: the folder is to be published.
_OF_THE_MACHINE = ("command", "system")


def export_folder(
    policy: TrainedPolicy,
    folder: str | os.PathLike[str],
    *,
    run: str | os.PathLike[str],
    environment: str,
    params: bool = False,
) -> dict[str, Any]:
    """Write a new folder with a policy in both formats, `config.json` and a model card, `README.md`.

    Nothing is uploaded: `hf upload USER/NAME FOLDER` does that. All numbers of the card are read
    from config.json, whose numbers come from the run's own files: the row of progress.csv at the policy's
    step, config.json and versions.json. The folder appears when all files in it are complete.

    Args:
        policy: the result of `load_policy(run)`.
        folder: must not exist, or be empty.
        run: the run's folder.
        environment: name of the environment, such as "CartPole-v1".
        params: whether the files also return the parameters of the distribution.

    Returns:
        The content of config.json: `name`, `environment`, `policy` (the description, see `export_policy`),
        `evaluation` (columns of progress.csv, None if this step was not evaluated), `config`, `versions`.

    Raises:
        ValueError: if the folder is not empty, and for the reasons given in `export_policy`.
        TypeError, ImportError, OSError: for the reasons given in `export_policy`.
    """
    folder = Path(folder)
    check_folder(folder)
    aside = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.tmp")
    aside.mkdir()
    try:
        for name in FILES:  # both have the same inputs and outputs
            described = export_policy(policy, aside / name, params=params)
        config = _config_of(RunFolder.open(run), environment, described)
        text = json.dumps(config, indent=2, allow_nan=False)
        (aside / "config.json").write_text(f"{text}\n", encoding="utf-8")
        # From the text, so that the card has no other number.
        (aside / "README.md").write_text(model_card(json.loads(text)), encoding="utf-8")
        os.replace(aside, folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return config


def check_folder(folder: Path) -> None:
    """Check that a folder can be created there, or is empty, and that both formats can be written.

    Raises:
        ValueError, FileNotFoundError, ImportError: if not.
    """
    for name in FILES:
        format_of(folder / name)
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"{folder}: there is no folder {folder.parent}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: expected a new or empty folder; remove it or choose another")


def _config_of(run: RunFolder, environment: str, described: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": run.path.resolve().name,
        "environment": environment,
        "policy": described,
        "evaluation": evaluation_at(run.path / "progress.csv", described["elapsed_steps"]),
        "config": _finite(run.read_record().config),
        "versions": {
            name: version
            for name, version in run.read_versions().items()
            if name not in _OF_THE_MACHINE
        },
    }


def evaluation_at(table: Path, step: int) -> dict[str, float] | None:
    """Return the evaluation at a step: the columns of progress.csv below `evaluation/`, by name.

    The last of several rows counts, as a resumed run may repeat a step. None if there is no such row, or no
    such file.
    """
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row.get("step") == str(step)]
    except FileNotFoundError:
        return None
    for row in reversed(rows):
        found = {
            name.removeprefix(_EVALUATION): float(cell)
            for name, cell in row.items()
            if name.startswith(_EVALUATION) and cell
        }
        found = {name: number for name, number in found.items() if math.isfinite(number)}
        if "return/mean" in found:
            return found
    return None


def _finite(values: Any) -> Any:
    """Replace infinite numbers and NaN, which JSON has not, by their names."""
    if isinstance(values, Mapping):
        return {name: _finite(value) for name, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [_finite(value) for value in values]
    return str(values) if isinstance(values, float) and not math.isfinite(values) else values
