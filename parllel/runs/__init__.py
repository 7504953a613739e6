"""Run folders: records, configs, checkpoints and saved states."""

from parllel.runs.checkpoints import Checkpoints
from parllel.runs.config import (
    change_config,
    config_values,
    key_paths,
    nearest_key,
    read_config,
    whole_number,
)
from parllel.runs.run_folder import RunFolder, find_runs, versions
from parllel.runs.run_record import RunRecord
from parllel.runs.run_result import RunResult
from parllel.runs.state_file import load_state, save_state

__all__ = [
    "Checkpoints",
    "RunFolder",
    "RunRecord",
    "RunResult",
    "change_config",
    "config_values",
    "find_runs",
    "key_paths",
    "load_state",
    "nearest_key",
    "read_config",
    "save_state",
    "versions",
    "whole_number",
]
