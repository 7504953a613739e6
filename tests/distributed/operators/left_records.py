"""What experiments and boards leave in their folders, without what takes time."""

from __future__ import annotations

from parllel.distributed.operators import read_telemetry
from parllel.distributed.operators.experiments.telemetry import TIMES


def records(folder, run_id, kind):
    """Return the records of an operator; kind: "steps" or "episodes"."""
    return list(read_telemetry(folder / "telemetry" / f"{run_id}_{kind}.jsonl"))


def without_times(value, left_out=TIMES):
    """Return JSON values without times, however deep."""
    if isinstance(value, dict):
        return {
            name: without_times(part, left_out)
            for name, part in value.items()
            if name not in left_out
        }
    return [without_times(part, left_out) for part in value] if isinstance(value, list) else value


def all_records(folder):
    """Return the records of all operators without times, by file, but for interrupted episodes."""
    return {
        path.name: without_times(list(read_telemetry(path)))
        for path in sorted((folder / "telemetry").iterdir())
        if not path.name.endswith("_interrupted.jsonl")
    }
