"""Where the time of one batch goes."""

from __future__ import annotations

from time import perf_counter


class BatchTimer:
    """Count the seconds of one batch by what they were spent on.

    A sampler has one only for the batch that `collect_timed_batch` makes, as reading the clock twice per
    row costs time itself.
    """

    def __init__(self) -> None:
        # Of all clocks this one has the finest resolution, and never goes back.
        self._began = perf_counter()
        self._inference = self._transforms = 0.0

    def add_inference(self, began: float) -> None:
        """Count the time since `began` for the agent and the step transforms."""
        self._inference += perf_counter() - began

    def add_transforms(self, began: float) -> None:
        """Count the time since `began` for what is done to a finished batch."""
        self._transforms += perf_counter() - began

    def seconds(self) -> dict[str, float]:
        """Return the seconds since the timer was made, by part.

        `inference` is the agent and the step transforms, `transforms` what is done to a finished batch.
        `environments` is the rest: stepping environments in this process, or waiting for those in others.
        """
        # The rest, not measured: that would be two more readings of the clock for every row.
        total = perf_counter() - self._began
        return {
            "inference": self._inference,
            "environments": max(total - self._inference - self._transforms, 0.0),
            "transforms": self._transforms,
        }
