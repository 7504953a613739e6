"""Rows in a run of Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parllel.logging.writer import Level, Number, Writer

STEPS = "environment_steps"  # by which W&B draws everything else


class WandbWriter(Writer):
    """Log rows to a run of Weights & Biases, drawn against environment steps.

    W&B keeps every row: after a resume those that followed the checkpoint are there twice, the old ones
    before a row with `rewound_to_step`.

    Args:
        run: what `wandb.init` returned, with your project, name and mode; finished by `close`. It starts
            threads and a process: make it after the cages, and before the Logger.

    Raises:
        TypeError: if `run` is something else.
    """

    def __init__(self, run: Any) -> None:
        missing = [name for name in ("log", "define_metric", "finish") if not hasattr(run, name)]
        if missing:
            raise TypeError(
                f"WandbWriter: run: expected the run returned by wandb.init(), got {run!r:.100}; "
                "to install wandb, use pip install '.[wandb]' in a checkout of parllel"
            )
        self.run = run
        self._open = True
        run.define_metric(STEPS, hidden=True)
        run.define_metric("*", step_metric=STEPS)

    def write(self, step: int, values: Mapping[str, Number]) -> None:
        """Log a row; W&B takes it to its own process, and from there to its server or a file."""
        self.run.log({**values, STEPS: step})

    def message(self, level: Level, text: str) -> None:
        """Do nothing: messages belong in the log file."""

    def rewind(self, step: int) -> None:
        """Log where the run goes on from; rows cannot be taken back."""
        self.run.log({"rewound_to_step": step, STEPS: step})

    def close(self) -> None:
        """Finish the run, and wait until W&B has all rows."""
        if self._open:
            self._open = False
            self.run.finish()
