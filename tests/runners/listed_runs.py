"""A sampler that returns lists, an algorithm that counts, and a writer that keeps rows."""

from __future__ import annotations

import numpy as np

from parllel.algos import Algorithm
from parllel.cages import TrajInfo
from parllel.logging import (
    Writer,
)
from parllel.samplers import Sampler
from parllel.types import BatchSpec

BATCH = BatchSpec(5, 2)


class RowWriter(Writer):
    """Keep rows."""

    def __init__(self):
        self.rows = {}
        self.messages = []

    def write(self, step, values):
        assert step not in self.rows
        self.rows[step] = dict(values)

    def message(self, level, text):
        self.messages.append((level, text))

    def close(self):
        pass


def traj(return_, length=1, **more):
    info = TrajInfo()
    info.return_, info.length = float(return_), length
    vars(info).update(more)
    return info


class ListSampler(Sampler):
    """Return one list of episodes after another; the last one again and again."""

    def __init__(self, *batches):
        self.batches = list(batches)
        self.elapsed = []

    def collect_batch(self, elapsed_steps):
        self.elapsed.append(elapsed_steps)
        trajs = self.batches.pop(0) if len(self.batches) > 1 else self.batches[0]
        return f"batch {len(self.elapsed)}", trajs

    def count_steps(self, samples):
        return BATCH.size

    @property
    def stats(self):
        return {"scalar": 3.0, "array": np.array([1.0, 3.0])}

    def state(self):
        return {"collected": len(self.elapsed)}

    def load_state(self, state):
        self.elapsed = [None] * state["collected"]

    def close(self):
        pass


class CountingAlgorithm(Algorithm):
    """Count, and fail in one call."""

    def __init__(self, failing=None):
        self.calls = []
        self.failing = failing

    def optimize_agent(self, elapsed_steps, samples):
        self.calls.append((elapsed_steps, samples))
        if len(self.calls) == self.failing:
            raise FloatingPointError("the loss is not finite")
        return {"loss": len(self.calls) / 2, "ratio": np.array([1.0, 2.0])}

    def state(self):
        return {"calls": len(self.calls)}

    def load_state(self, state):
        self.calls = [None] * state["calls"]
