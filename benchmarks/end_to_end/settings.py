"""Training settings of every side, and the format of its report. Imports only the standard library."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

TrainingSettingsT = TypeVar("TrainingSettingsT", bound="TrainingSettings")


@dataclass(frozen=True)
class TrainingSettings:
    """What every training has, whatever its algorithm.

    Attributes:
        env: the gymnasium id.
        n_steps: environment steps to sample, rounded down to whole batches, one at least.
        T, B: steps and environments of a batch, after each of which a side reports.
        torch_threads: of each process that learns.
        options: what only one side knows, such as where its environments are.
    """

    seed: int = 0
    env: str = "CartPole-v1"
    n_steps: int = 204_800
    T: int = 128
    B: int = 16
    learning_rate: float = 2.5e-4
    discount: float = 0.99
    hidden_sizes: tuple[int, ...] = (64, 64)
    torch_threads: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def batch_size(self) -> int:
        """Return the steps of one batch."""
        return self.T * self.B

    @property
    def n_batches(self) -> int:
        """Return how often a batch is sampled and learnt from."""
        return max(1, self.n_steps // self.batch_size)

    def to_json(self) -> str:
        """Return the settings as an argument of a command."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls: type[TrainingSettingsT], text: str) -> TrainingSettingsT:
        """Return what `to_json` was made from."""
        values = json.loads(text)
        return cls(**{**values, "hidden_sizes": tuple(values["hidden_sizes"])})


@dataclass(frozen=True)
class Settings(TrainingSettings):
    """Hyperparameters of PPO, the same for every side.

    Attributes:
        learning_rate: falls linearly from batch to batch, to zero after the last one.
        minibatches: per epoch; advantages are normalised per minibatch, by ours per batch.
        value_loss_coeff: weight of half the mean squared error of the values.
        hidden_sizes: of the policy and of the value function, each with tanh and orthogonal weights.
        normalize: whether observations and rewards are divided by running standard deviations.
        initial_log_std: of continuous actions, before training.
    """

    gae_lambda: float = 0.95
    epochs: int = 4
    minibatches: int = 4
    ratio_clip: float = 0.2
    value_loss_coeff: float = 0.5
    entropy_loss_coeff: float = 0.01
    clip_grad_norm: float = 0.5
    normalize: bool = False
    initial_log_std: float = 0.0


@dataclass(frozen=True)
class SacSettings(TrainingSettings):
    """Hyperparameters of SAC, the same for both sides; others are those of Haarnoja et al. 2018b, table 1.

    Attributes:
        update_interval: environment steps between which as many gradient steps are taken.
        transitions: drawn for a gradient step.
        learning_starts: environment steps with random actions, before the first gradient step.
        hidden_sizes: of the policy and of each critic, with ReLU.
    """

    env: str = "HalfCheetah-v5"
    n_steps: int = 50_000
    T: int = 1000  # an episode
    B: int = 1
    learning_rate: float = 3e-4
    hidden_sizes: tuple[int, ...] = (256, 256)
    update_interval: int = 8
    transitions: int = 256
    learning_starts: int = 10_000


class Reporter:
    """Write JSON lines to the standard output that the process was started with.

    Prints of the training itself go to standard error from here on, so that nothing mixes.
    """

    def __init__(self) -> None:
        self._lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
        sys.stdout = sys.stderr
        self._last = 0.0

    def ready(self, **libraries: str) -> None:
        """Say that training begins now, and with which versions."""
        self._write({"event": "ready", "libraries": libraries})
        self._last = time.perf_counter()

    def batch(self, sampled_at: float, returns: Sequence[float]) -> None:
        """Say that a batch has been sampled and learnt from.

        sampled_at: `time.perf_counter()` between the two.  returns: of the episodes that it ended.
        """
        now = time.perf_counter()
        seconds = {"sampling_s": sampled_at - self._last, "learning_s": now - sampled_at}
        self._write({"event": "batch", **seconds, "returns": [float(r) for r in returns]})
        self._last = now

    def result(self, **values: Any) -> None:
        """Report JSON values of the whole training."""
        self._write({"event": "result", **values})

    def end(self) -> None:
        """Say that training has ended and close the stream."""
        self._write({"event": "end"})
        self._lines.close()

    def _write(self, message: dict[str, Any]) -> None:
        self._lines.write(json.dumps(message) + "\n")
