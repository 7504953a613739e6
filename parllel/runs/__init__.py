"""The store of runs: folders, records, configs, checkpoints and the states in them."""

from parllel.runs.checkpoints import Checkpoints
from parllel.runs.config import change_config, config_values, read_config
from parllel.runs.config_keys import key_paths, nearest_key
from parllel.runs.config_reading import whole_number
from parllel.runs.reference import Reference, check_not_importing, import_script
from parllel.runs.run_folder import RunFolder, versions
from parllel.runs.run_list import find_runs, run_state
from parllel.runs.run_record import TRAINING, RunRecord
from parllel.runs.run_result import RunResult
from parllel.runs.state_file import check_state, load_state, save_state
from parllel.runs.trust import check_source

__all__ = [
    "TRAINING",
    "Checkpoints",
    "Reference",
    "RunFolder",
    "RunRecord",
    "RunResult",
    "change_config",
    "check_not_importing",
    "check_source",
    "check_state",
    "config_values",
    "find_runs",
    "import_script",
    "key_paths",
    "load_state",
    "nearest_key",
    "read_config",
    "run_state",
    "save_state",
    "versions",
    "whole_number",
]
