"""The loop of on-policy learning: sample a batch, learn from it, forget it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from rich.console import Console

from parllel.agents import Agent
from parllel.algos import Algorithm
from parllel.buffers import Samples
from parllel.cages import TrajInfo
from parllel.logging import Logger
from parllel.runners.callback import Callback
from parllel.runners.checkpointing import Checkpointing
from parllel.runners.progress import ProgressBar
from parllel.runners.random_state import load_random_state, random_state
from parllel.runners.row_log import RowLog
from parllel.runners.stop_signals import StopSignals
from parllel.runners.time_account import TimeAccount
from parllel.runs import RunFolder, RunResult
from parllel.samplers import BatchSampler, BatchTimer, Sampler
from parllel.seeding import Seeds
from parllel.types import BatchSpec, State

_OWN_PARTS = ("sampler", "algorithm", "eval_sampler")  # of what a checkpoint holds


class OnPolicyRunner:
    """Train until enough steps were sampled, or an evaluation reaches a target.

    SIGINT (Ctrl-C) and SIGTERM end the run after the current batch, with a checkpoint; a second
    one ends it at once. A run that `load_state` has put where another one was goes on exactly as that one
    would have.

    Args:
        batch_spec: of the sampler.
        sampler: of training.
        algorithm: learns from each batch once.
        n_steps: environment steps to sample; the last batch may exceed it.
        logger: rows are written every `log_interval_steps`.
        log_interval_steps: environment steps between rows.
        eval_sampler: plays the episodes of an evaluation, before training and then before rows.
        target_return: stop when the mean return of an evaluation reaches it.
        state_parts: what goes into the checkpoint besides sampler, algorithm and counters, by name: things
            with `state()` and `load_state()`. An Agent that the algorithm has as `agent` need not be among
            them: it is saved in any case.
        folder: gets seeds and allocators, checkpoints (the last ones, and one of the best evaluation), and
            the learning curve; None saves nothing.
        seeds: what everything random was drawn from.
        callbacks: are called around sampling, learning and evaluation, in order.
        checkpoint_interval_s: seconds between checkpoints, which are written after rows of the log; one more
            is written at the start and one at the end.
        keep_checkpoints: how many of them stay in the folder, the newest ones.
        console: of the progress bar; None shows none.

    Raises:
        ValueError: if a number of steps is less than one, a target comes without an eval sampler, or one
            of `state_parts` has a name that the checkpoint has for something else.
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
        seeds: Seeds | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint_interval_s: float = 30.0,
        keep_checkpoints: int = 3,
        console: Console | None = None,
    ) -> None:
        for name, value in (("n_steps", n_steps), ("log_interval_steps", log_interval_steps)):
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        if target_return is not None and math.isnan(target_return):
            raise ValueError("target_return: expected a number or None, got nan")
        if target_return is not None and eval_sampler is None:
            raise ValueError("target_return: expected an eval_sampler to measure it with")
        for name in _OWN_PARTS:
            if name in (state_parts or {}):
                raise ValueError(
                    f"state_parts: {name!r} is a name that the runner uses itself; rename it"
                )
        self.batch_spec = batch_spec
        self.sampler = sampler
        self.algorithm = algorithm
        self.n_steps = n_steps
        self.logger = logger
        self.log_interval_steps = log_interval_steps
        self.eval_sampler = eval_sampler
        self.target_return = target_return
        self.folder = folder
        self.seeds = seeds
        self.callbacks = list(callbacks)
        self.account = TimeAccount()
        self.result = RunResult()
        self._state_parts = dict(state_parts or {})
        self._console = console
        self._row = RowLog(logger)
        self._next_row = log_interval_steps
        self._stop_reason: str | None = None
        self._begun = False  # whether the evaluation before training has been made
        self._running = self._save_wanted = False
        self._checkpoints = Checkpointing(
            folder, logger, checkpoint_interval_s, keep=keep_checkpoints
        )

    # ------------------------------------------------------------------ the loop

    def run(self) -> RunResult:
        """Train, and return what came of it, with a checkpoint at the end.

        An exception leaves the checkpoints as they were before the batch that failed. The learning curve is
        drawn however the run ends.
        """
        result = self.result
        result.stopped_by = self._stop_reason = None
        with ExitStack() as stack:
            for callback in self.callbacks:
                stack.callback(callback.close)
            stack.enter_context(self.logger.catch_warnings())
            bar = stack.enter_context(
                ProgressBar(self._console, self.n_steps, done=result.elapsed_steps)
            )
            signals = stack.enter_context(StopSignals(bar.announce_stop))
            stack.callback(setattr, self, "_running", False)
            self._running = True
            self._start()
            stack.callback(self._checkpoints.draw, result)
            if not self._begun:
                self._evaluate(bar)
                self._write()
                self._begun = True
            self._checkpoints.write_first(self)
            while result.elapsed_steps < self.n_steps and not result.solved:
                if signals.received or self._stop_reason:
                    break
                self._learn_from_one_batch(bar)
            result.stopped_by = signals.received or self._stop_reason
            self._checkpoints.write_unless_written(self)
        self._say_where_time_went()
        return result

    def _learn_from_one_batch(self, bar: ProgressBar) -> None:
        result = self.result
        diagnostics = self.run_iteration()
        self._checkpoints.check_once(self)
        bar.update(result.elapsed_steps)
        last = result.elapsed_steps >= self.n_steps
        if result.elapsed_steps >= self._next_row or last:
            self._evaluate(bar)
            self._write_row(diagnostics)
            self._checkpoints.write_if_best(self)
            self._checkpoints.write_if_due(self)
        if self._save_wanted:
            self._save_wanted = False
            self._checkpoints.write_unless_written(self)

    def stop(self, reason: str) -> None:
        """Let the run end after the current batch, with a checkpoint to go on from."""
        self._stop_reason = reason

    def _start(self) -> None:
        self._checkpoints.write_start(self.seeds, getattr(self.sampler, "samples", None))
        random = random_state()
        for callback in self.callbacks:
            callback.start(self)
        if self._begun:  # what they draw was drawn when the run began
            load_random_state(random)

    def run_iteration(self) -> Mapping[str, Any]:
        """Sample one batch, learn from it, and return the algorithm's diagnostics."""
        result = self.result
        for callback in self.callbacks:
            callback.before_sampling(result.elapsed_steps)
        with self.account.stage("sampling"):
            samples, trajs = self.sample()
        steps = self.sampler.count_steps(samples)
        result.elapsed_steps += steps
        self._row.add_batch(steps, trajs)
        for callback in self.callbacks:
            callback.after_sampling(result.elapsed_steps, samples, trajs)
            callback.before_optimization(result.elapsed_steps)
        with self.account.stage("optimising"):
            diagnostics = self.algorithm.optimize_agent(result.elapsed_steps, samples)
        for callback in self.callbacks:
            callback.after_optimization(result.elapsed_steps, diagnostics)
        return diagnostics

    def sample(self) -> tuple[Samples, list[TrajInfo]]:
        """Collect the batch of one iteration; in one batch of each row look where the time goes."""
        elapsed_steps = self.result.elapsed_steps
        if not (self.account.wants_parts and isinstance(self.sampler, BatchSampler)):
            return self.sampler.collect_batch(elapsed_steps)
        with BatchTimer(self.sampler) as timer:
            batch = self.sampler.collect_batch(elapsed_steps)
        self.account.see_parts(timer.seconds)
        return batch

    def _evaluate(self, bar: ProgressBar) -> None:
        if self.eval_sampler is None:
            return
        result = self.result
        bar.say("evaluating")
        for callback in self.callbacks:
            callback.before_evaluation(result.elapsed_steps)
        with self.account.stage("evaluating"):
            _, trajs = self.eval_sampler.collect_batch(result.elapsed_steps)
        self._log_trajs("evaluation", [traj.as_dict() for traj in trajs])
        result.evaluation_return = float(np.mean([traj.return_ for traj in trajs]))
        result.solved = self._is_solved()
        for callback in self.callbacks:
            callback.after_evaluation(result.elapsed_steps, trajs)
        bar.say(f"return {result.evaluation_return:.1f}")

    def _is_solved(self) -> bool:
        # The mode of an untrained policy can balance a pole by luck; that solves nothing.
        if self.target_return is None or self.result.elapsed_steps == 0:
            return False
        return self.result.evaluation_return >= self.target_return

    # ------------------------------------------------------------------ rows

    def _write_row(self, diagnostics: Mapping[str, Any]) -> None:
        with self.account.stage("logging"):
            steps, rows = self._row.take()
            self._log_trajs("training", rows)
            self._row.log_all("algorithm", diagnostics)
            self._row.log_all("sampler", self.sampler.stats)
        seconds = self.account.take_row()
        busy = seconds["sampling"] + seconds["optimising"]
        self.logger.log_value("time/steps_per_second", steps / max(busy, 1e-9))
        for name, value in seconds.items():
            self.logger.log_value(f"time/{name}_s", value)
        self._write()
        # The row of an end is one more: the run may be made longer, and has the others in their places.
        if self.result.elapsed_steps >= self._next_row:
            self._next_row += self.log_interval_steps

    def _write(self) -> None:
        with self.account.stage("logging"):
            for callback in self.callbacks:
                callback.before_row(self.result.elapsed_steps)
            self.logger.write(self.result.elapsed_steps)

    def _log_trajs(self, group: str, rows: list[dict[str, Any]]) -> None:
        if rows:
            mean = self._row.log_trajs(group, rows)
            self.result.curves[group].append((self.result.elapsed_steps, mean))

    def _say_where_time_went(self) -> None:
        lines = self.account.lines()
        if lines:
            self.logger.notice("time went to\n" + "\n".join(lines))

    # ------------------------------------------------------------------ checkpoints

    def _parts(self) -> dict[str, Any]:
        """Return everything with a state, by its name in checkpoints."""
        # The agent first: of a model of another shape it has the plainest things to say.
        parts = dict(self._state_parts)
        agent = getattr(self.algorithm, "agent", None)
        # Without it a resumed run would begin with new weights, and nobody would be told.
        if isinstance(agent, Agent) and not any(part is agent for part in parts.values()):
            parts = {"agent": agent, **parts}
        parts |= {"sampler": self.sampler, "algorithm": self.algorithm}
        if self.eval_sampler is not None:
            parts["eval_sampler"] = self.eval_sampler
        return parts

    def _named_callbacks(self) -> dict[str, Callback]:
        """Return the callbacks by a name that does not depend on those of other classes."""
        names = [type(callback).__name__ for callback in self.callbacks]
        numbered = [f"{name}_{names[:i].count(name)}" for i, name in enumerate(names)]
        return dict(zip(numbered, self.callbacks, strict=True))

    def state(self) -> State:
        """Return the states of all parts, of the process's random generators, and the counters."""
        result = self.result
        return {
            "elapsed_steps": result.elapsed_steps,
            "evaluation_return": result.evaluation_return,
            "curves": {name: [list(point) for point in c] for name, c in result.curves.items()},
            "begun": self._begun,
            "next_row": self._next_row,
            "row": self._row.state(),
            "time": self.account.state(),
            "random": random_state(),
            "parts": {name: part.state() for name, part in self._parts().items()},
            "callbacks": {name: one.state() for name, one in self._named_callbacks().items()},
        }

    def load_state(self, state: State) -> None:
        """Take back what `state` returned, so that `run` goes on from there.

        Raises:
            ValueError: if it does not fit the parts of this runner; names the part. The run is then in no
                state to be used.
        """
        parts, saved = self._parts(), state["parts"]
        if set(parts) != set(saved):
            raise ValueError(f"expected the states of {sorted(parts)}, got {sorted(saved)}")
        for name, part in parts.items():
            load_part(name, part, saved[name])
        # Who watches may change: a callback that the checkpoint does not know starts afresh.
        for name, callback in self._named_callbacks().items():
            if name in state["callbacks"]:
                load_part(name, callback, state["callbacks"][name])
        result = self.result
        result.elapsed_steps = int(state["elapsed_steps"])
        result.evaluation_return = float(state["evaluation_return"])
        result.curves = {
            name: [(int(step), float(value)) for step, value in curve]
            for name, curve in state["curves"].items()
        }
        result.solved = self._is_solved()
        self._begun, self._next_row = bool(state["begun"]), int(state["next_row"])
        self._row.load_state(state["row"])
        self.account.load_state(state["time"])
        load_random_state(state["random"])  # last: loading may draw
        self._checkpoints.loaded(self)

    def save(self) -> None:
        """Write a checkpoint into the folder: now, or, while `run` runs, after the current batch.

        In the middle of a batch there is nothing that a run could go on from; trouble there is a warning.

        Raises:
            OSError: if it cannot be written; TypeError if a part's state is not arrays and JSON values.
        """
        if self._running:
            self._save_wanted = True
        else:
            self._checkpoints.write(self)


def load_part(name: str, part: Any, state: State) -> None:
    """Load the state of a part; ValueError that names it if that does not fit."""
    try:
        part.load_state(state)
    except (ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from error
