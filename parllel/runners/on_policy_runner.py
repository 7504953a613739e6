"""The loop of on-policy learning: sample a batch, learn from it, forget it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from rich.console import Console

from parllel.algos import Algorithm
from parllel.buffers import Samples
from parllel.cages import TrajInfo
from parllel.logging import Logger
from parllel.runners.learning_curve import plot_learning_curve
from parllel.runners.progress import ProgressBar
from parllel.runners.run_folder import RunFolder
from parllel.runners.state_file import save_state
from parllel.samplers import Sampler
from parllel.types import BatchSpec, State


@dataclass
class RunResult:
    """What came of a run.

    Attributes:
        elapsed_steps: environment steps sampled for training; those of evaluations do not count.
        evaluation_return: mean return of the last evaluation; NaN without one.
        solved: whether an evaluation reached the target.
        curves: `(steps, mean return)` of "training" and "evaluation".
    """

    elapsed_steps: int = 0
    evaluation_return: float = float("nan")
    solved: bool = False
    curves: dict[str, list[tuple[int, float]]] = field(
        default_factory=lambda: {"training": [], "evaluation": []}
    )


class OnPolicyRunner:
    """Train until enough steps were sampled, or an evaluation reaches a target.

    Args:
        batch_spec: of the sampler.
        sampler: of training.
        algorithm: learns from each batch once.
        n_steps: environment steps to sample; the last batch may exceed it.
        logger: rows are written every `log_interval_steps`.
        log_interval_steps: environment steps between rows.
        eval_sampler: plays the episodes of an evaluation, before training and then before rows.
        target_return: stop when the mean return of an evaluation reaches it.
        state_parts: what goes into the checkpoint beside sampler, algorithm and counters, by name: things
            with `state()` (the agent).
        folder: gets the checkpoint and the learning curve at the end; None saves nothing.
        console: of the progress bar; None shows none.

    Raises:
        ValueError: if a number of steps is less than one, or a target comes without an eval sampler.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        sampler: Sampler,
        algorithm: Algorithm,
        *,
        n_steps: int,
        logger: Logger,
        log_interval_steps: int,
        eval_sampler: Sampler | None = None,
        target_return: float | None = None,
        state_parts: Mapping[str, Any] | None = None,
        folder: RunFolder | None = None,
        console: Console | None = None,
    ) -> None:
        for name, value in (("n_steps", n_steps), ("log_interval_steps", log_interval_steps)):
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        if target_return is not None and eval_sampler is None:
            raise ValueError("target_return: expected an eval_sampler to measure it with")
        self.batch_spec = batch_spec
        self.sampler = sampler
        self.algorithm = algorithm
        self.n_steps = n_steps
        self.logger = logger
        self.log_interval_steps = log_interval_steps
        self.eval_sampler = eval_sampler
        self.target_return = target_return
        self.folder = folder
        self.result = RunResult()
        self._state_parts = dict(state_parts or {})
        self._console = console
        self._trajs: list[TrajInfo] = []
        self._seconds = {"sampling": 0.0, "optimising": 0.0}
        self._steps_in_row = 0

    def run(self) -> RunResult:
        """Train, and return what came of it; the folder is written whether or not it is solved."""
        result = self.result
        try:
            with ProgressBar(self._console, self.n_steps) as bar:
                self._evaluate(bar)
                next_row = self.log_interval_steps
                while result.elapsed_steps < self.n_steps and not result.solved:
                    diagnostics = self.run_iteration()
                    bar.update(result.elapsed_steps)
                    last = result.elapsed_steps >= self.n_steps
                    if result.elapsed_steps >= next_row or last:
                        self._evaluate(bar)
                        self._write_row(diagnostics)
                        next_row += self.log_interval_steps
        finally:
            self.save()
        return result

    def run_iteration(self) -> Mapping[str, Any]:
        """Sample one batch, learn from it, and return the algorithm's diagnostics."""
        begin = time.perf_counter()
        samples, trajs = self.sample()
        middle = time.perf_counter()
        steps = count_steps(samples, self.batch_spec)
        self.result.elapsed_steps += steps
        diagnostics = self.algorithm.optimize_agent(self.result.elapsed_steps, samples)
        self._seconds["sampling"] += middle - begin
        self._seconds["optimising"] += time.perf_counter() - middle
        self._steps_in_row += steps
        self._trajs += trajs
        return diagnostics

    def sample(self) -> tuple[Samples, list[TrajInfo]]:
        """Collect the batch of one iteration."""
        return self.sampler.collect_batch(self.result.elapsed_steps)

    def _evaluate(self, bar: ProgressBar) -> None:
        if self.eval_sampler is None:
            return
        result = self.result
        bar.say("evaluating")
        _, trajs = self.eval_sampler.collect_batch(result.elapsed_steps)
        self._log_trajs("evaluation", trajs)
        result.evaluation_return = float(np.mean([traj.return_ for traj in trajs]))
        # The mode of an untrained policy can balance a pole by luck; that solves nothing.
        if self.target_return is not None and result.elapsed_steps > 0:
            result.solved = result.evaluation_return >= self.target_return
        bar.say(f"return {result.evaluation_return:.1f}")
        if result.elapsed_steps == 0:
            self.logger.write(0)

    def _write_row(self, diagnostics: Mapping[str, Any]) -> None:
        self._log_trajs("training", self._trajs)
        self._trajs = []
        for name, value in diagnostics.items():
            log = self.logger.log_array if np.ndim(value) else self.logger.log_value
            log(f"algorithm/{name}", value)
        for name, value in self.sampler.stats.items():
            log = self.logger.log_array if np.ndim(value) else self.logger.log_value
            log(f"sampler/{name}", value)
        total = sum(self._seconds.values())
        self.logger.log_value("time/steps_per_second", self._steps_in_row / max(total, 1e-9))
        for name, seconds in self._seconds.items():
            self.logger.log_value(f"time/{name}_s", seconds)
        self._seconds = dict.fromkeys(self._seconds, 0.0)
        self._steps_in_row = 0
        self.logger.write(self.result.elapsed_steps)

    def _log_trajs(self, group: str, trajs: list[TrajInfo]) -> None:
        if not trajs:
            return
        returns = [traj.return_ for traj in trajs]
        self.result.curves[group].append((self.result.elapsed_steps, float(np.mean(returns))))
        rows = [traj.as_dict() for traj in trajs]
        for name in rows[0]:
            values = [row[name] for row in rows]
            if all(isinstance(value, (Real, np.bool_)) for value in values):
                self.logger.log_array(f"{group}/{name}", values)

    def state(self) -> State:
        """Return the states of all parts, and the counters."""
        parts = {"sampler": self.sampler, "algorithm": self.algorithm, **self._state_parts}
        return {
            "elapsed_steps": self.result.elapsed_steps,
            **{name: part.state() for name, part in parts.items()},
        }

    def save(self) -> None:
        """Write the checkpoint and the learning curve into the folder."""
        if self.folder is None:
            return
        save_state(self.folder.checkpoint, self.state())
        title = self.folder.path.name
        plot_learning_curve(self.folder.learning_curve, self.result.curves, title)


def count_steps(samples: Samples, batch_spec: BatchSpec) -> int:
    """Return how many environment steps a batch holds: all, or those where `env.valid` is true."""
    valid = getattr(getattr(samples, "env", None), "valid", None)
    return batch_spec.size if valid is None else int(np.count_nonzero(np.asarray(valid)))
