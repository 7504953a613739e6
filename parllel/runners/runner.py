"""The training loop: sample, learn, and periodically evaluate, log and save.

Runners differ in their `LearningCycle`: when and how the algorithm learns from batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from parllel.algos.algorithm import Algorithm
from parllel.algos.learner_group import LearnerGroup
from parllel.buffers.samples import Samples
from parllel.logging.logger import Logger
from parllel.replays.replay import Replay
from parllel.runners.callback import Callback
from parllel.runners.checkpointing import Checkpointing
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.matching_parts import (
    check_lost_steps,
    check_parts,
    check_publishing,
    check_saved_agent,
    check_schedule,
    check_seeds,
    check_size,
)
from parllel.runners.matching_replay import check_copied_batch
from parllel.runners.progress import ProgressBar
from parllel.runners.row_log import RowLog, TimeAccount
from parllel.runners.saved_parts import SavedParts, load_random_state, random_state
from parllel.runners.shared_learning import SharedCycle, join_learners
from parllel.runners.stop_signals import StopSignals
from parllel.runners.user_errors import mark_errors
from parllel.runs.names import suggest_names
from parllel.runs.run_folder import RunFolder
from parllel.runs.run_result import RunResult
from parllel.samplers.eval_sampler import EvalSampler
from parllel.samplers.sampler import Sampler
from parllel.seeding import Seeds
from parllel.types import BatchSpec, State

WORTH_NAMING_S = 0.5  # of compilation before a run


class Runner:
    """Trains until enough steps have been sampled, or an evaluation reaches a target.

    `cycle_class` determines when and how the algorithm learns; this is all that distinguishes
    runners. SIGINT (Ctrl-C) and SIGTERM end the run after the current batch, with a checkpoint. A
    second signal ends it immediately. After `load_state`, `run` continues exactly as the saved run
    would have.

    Args:
        batch_spec: number of steps and environments in a batch of the sampler.
        sampler: sampler that collects the training batches.
        algorithm: algorithm that learns from the batches.
        n_steps: number of environment steps to sample; the last batch may exceed it.
        logger: logger that receives a row every `log_interval_steps`.
        log_interval_steps: environment steps between rows.
        eval_sampler: sampler that plays the episodes of an evaluation. There is one evaluation
            before training, and one before each row.
        target_return: stop when the mean return of an evaluation reaches it.
        state_parts: further objects with `state()` and `load_state()` to save, keyed by name.
            Sampler, algorithm, counters and the algorithm's `agent` are always saved.
        folder: folder for seeds, buffer description, checkpoints (the newest ones, and that of the
            best evaluation) and the learning curve; None saves nothing.
        seeds: the seeds of the run, saved in the folder.
        callbacks: callbacks to run around sampling, learning and evaluation, in order.
        checkpoint_interval_s: minimum seconds between checkpoints, which are written after rows. The first
            and last checkpoint of a run do not depend on it.
        keep_checkpoints: number of checkpoints to keep; older ones are removed.
        console: console that shows the progress bar; None shows none.
        also_reads: fields of the samples that callbacks read. It is an error if nothing reads the
            fields of a transform.
        learners: the processes that learn together, as `parllel.torch.Learners`. Batch size, sampler and
            algorithm are those of this process, with its share of the environments. Only the first of them
            evaluates, logs, writes checkpoints and runs callbacks. None is one process.

    Raises:
        ValueError: if a number of steps is less than one, a target is given without an eval
            sampler, a name in `state_parts` is reserved, the algorithm cannot learn from batches of
            this size, or the parts do not fit each other (see `check_parts`).
        TypeError: if one of `callbacks` is not a Callback; if the algorithm, the sampler or one of its
            transforms does not support several learners.

    Warns:
        UserWarning: if the learning rate falls to 0 before the run ends, or environments have equal seeds.
    """

    cycle_class: ClassVar[type[LearningCycle]] = LearningCycle
    # Set before this constructor is called, by runners that have one.
    replay: Replay | None = None

    @suggest_names()
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
        also_reads: Sequence[str] = (),
        learners: LearnerGroup | None = None,
    ) -> None:
        _check_bounds(n_steps, log_interval_steps, target_return, eval_sampler)
        _check_callbacks(callbacks)
        self.cycle = self.make_cycle(sampler, algorithm)
        if type(self.cycle) is LearningCycle:
            check_publishing(sampler, type(self).__name__)
        algorithm.check_batch_spec(batch_spec)  # before the first batch is sampled
        check_parts(
            batch_spec,
            sampler,
            algorithm,
            eval_sampler,
            also_reads=also_reads,
            replay=self.replay,
        )
        check_saved_agent(algorithm, state_parts or {})
        check_seeds(seeds, sampler)
        check_schedule(algorithm, n_steps)
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
        self.account = TimeAccount(self.cycle.stages)
        self._update_method: str | None = None
        self.result = RunResult()
        self._parts = SavedParts(
            state_parts or {}, sampler, algorithm, eval_sampler, self.callbacks, self.replay
        )
        self._console = console
        self._row = RowLog(logger)
        self._next_row = log_interval_steps
        self._stop_reason: str | None = None
        self._begun = False  # whether the evaluation before training has been made
        self._seen_batch = False
        self._running = self._save_wanted = False
        self._checkpoints = Checkpointing(
            folder, logger, checkpoint_interval_s, keep=keep_checkpoints
        )
        self.learners = None if learners is None or learners.n == 1 else learners
        if self.learners is not None:
            join_learners(sampler, algorithm, self.learners, batch_spec)
            self.cycle = SharedCycle(
                self.cycle,
                self.learners,
                batch_spec,
                self.replay,
                None if folder is None else folder.path,
            )

    def make_cycle(self, sampler: Sampler, algorithm: Algorithm) -> LearningCycle:
        """Return the LearningCycle of this run. Called once, at construction."""
        return self.cycle_class(sampler, algorithm)

    # ------------------------------------------------------------------ the loop

    def run(self) -> RunResult:
        """Train, write a final checkpoint, and return the result.

        After an exception, only the checkpoints from before the failed batch exist. The learning
        curve is drawn no matter how the run ends.
        """
        result = self.result
        # Cleared, because a stopped runner may run again.
        result.stopped_by = self._stop_reason = None
        with ExitStack() as stack:
            stack.enter_context(mark_errors(within_training=True))
            # Registered before any is started: if one fails to start, all are closed.
            for callback in self.callbacks:
                stack.callback(callback.close)
            stack.enter_context(self.logger.catch_warnings())
            bar = stack.enter_context(
                ProgressBar(
                    self._console,
                    self.n_steps,
                    done=result.elapsed_steps,
                    overview=self.sampler.overview,
                )
            )
            signals = stack.enter_context(StopSignals(bar.announce_stop))
            stack.callback(setattr, self, "_running", False)
            self._running = True
            self._start()
            # Registered only now: a run that could not begin has no curve.
            stack.callback(self._checkpoints.draw, result)
            # A resumed run has made the evaluation and the row of step 0 already.
            if not self._begun:
                self._evaluate(bar)
                self._write()
                self._begun = True
            # A full disk raises here, before any training is lost.
            with mark_errors(within_training=False):
                self._checkpoints.write_first(self)
            while result.elapsed_steps < self.n_steps and not result.solved:
                # Only between batches, where the state can be saved.
                if signals.received or self._stop_reason:
                    break
                diagnostics = self._run_iteration()
                bar.update(result.elapsed_steps)
                self._report(diagnostics, bar)
            result.stopped_by = signals.received or self._stop_reason
            self._checkpoints.write_unless_written(self)
        self._say_where_time_went()
        return result

    def _start(self) -> None:
        with mark_errors(within_training=False):
            # Samplers in other processes show their buffer only with the first batch.
            self._checkpoints.write_start(self.seeds, getattr(self.sampler, "samples", None))
        compiled_s = self.account.compiled_before_s
        if compiled_s >= WORTH_NAMING_S:
            self.logger.notice(
                f"functions were compiled for {compiled_s:.1f} s; later runs load them from a cache"
            )
        self.cycle.begin()
        random = random_state()
        # Otherwise they would count as a part of the first checkpoint, or of the first update.
        with self.account.stage("imports"):
            self.algorithm.prepare()
        for callback in self.callbacks:
            callback.start(self)
        if self._begun:  # what is drawn at a start was drawn when the run began
            load_random_state(random)

    def _run_iteration(self) -> Mapping[str, Any]:
        """Sample one batch, learn from it, and return the algorithm's diagnostics."""
        result, account, cycle = self.result, self.account, self.cycle
        for callback in self.callbacks:
            callback.before_sampling(result.elapsed_steps)
        with account.stage("sampling"):
            # One batch per row is timed in parts, which are scaled to all batches of the row.
            samples, trajs, seconds = cycle.sample(result.elapsed_steps, timed=account.wants_parts)
        if seconds:
            account.see_parts(seconds)
        self._see_first_batch(samples)
        steps = self.cycle.count_steps(samples)
        result.elapsed_steps += steps
        self._row.add_batch(steps, trajs)
        for callback in self.callbacks:
            callback.after_sampling(result.elapsed_steps, samples, trajs)
            callback.before_optimization(result.elapsed_steps)
        with account.stage("optimising"):
            diagnostics = cycle.learn(result.elapsed_steps, samples)
        account.move(cycle.take_seconds(), out_of="optimising")
        self._name_update_method()
        for callback in self.callbacks:
            callback.after_optimization(result.elapsed_steps, diagnostics)
        cycle.finish()
        # An optimiser has no state before its first step, so it is checked now.
        self._checkpoints.check_once(self)
        return diagnostics

    def _name_update_method(self) -> None:
        """Log how updates are computed, with the first batch and after each change."""
        method = self.algorithm.update_method
        if method != self._update_method:
            self.logger.notice(f"updates are computed by the method {method!r}")
            self._update_method = method

    def _see_first_batch(self, samples: Samples) -> None:
        """Do the deferred checks and writes for samples that another process allocates."""
        if self._seen_batch:
            return
        self._seen_batch = True
        if isinstance(samples, Samples) and getattr(self.sampler, "samples", None) is None:
            check_size(self.batch_spec, samples, self.sampler)
            check_lost_steps(self.algorithm, samples, self.replay)
            if self.replay is not None:
                check_copied_batch(samples, self.sampler, self.replay)
            self._checkpoints.see_batch(samples)
            if isinstance(self.eval_sampler, EvalSampler):
                self.eval_sampler.compare_with(samples)

    def _report(self, diagnostics: Mapping[str, Any], bar: ProgressBar) -> None:
        """Evaluate, write a row and checkpoints when they are due."""
        steps = self.result.elapsed_steps
        if steps >= self._next_row or steps >= self.n_steps:
            self._evaluate(bar)
            self._write_row(diagnostics)
            # After the row, which a resumed run then has and does not write again.
            self._checkpoints.write_if_best(self)
            self._checkpoints.write_if_due(self)
        if self._save_wanted:
            self._save_wanted = False
            self._checkpoints.write_unless_written(self)

    def stop(self, reason: str) -> None:
        """Stop the run after the current batch, with a checkpoint."""
        self._stop_reason = reason

    def _evaluate(self, bar: ProgressBar) -> None:
        if self.eval_sampler is None:
            return
        result = self.result
        bar.say("evaluating")
        for callback in self.callbacks:
            callback.before_evaluation(result.elapsed_steps)
        with self.account.stage("evaluating"):
            _, trajs = self.eval_sampler.collect_batch(result.elapsed_steps)
        self._row.log_trajs("evaluation", [traj.as_dict() for traj in trajs], result)
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
        self.cycle.log(self.logger)
        with self.account.stage("logging"):
            diagnostics = self.cycle.row_diagnostics(diagnostics)
            steps = self._row.log_batches(self.result, diagnostics, self.sampler.stats)
        self._row.log_seconds(self.account.take_row(), steps)
        self._write()
        # The final row does not shift the schedule, so that a longer run has its rows at the same steps.
        if self.result.elapsed_steps >= self._next_row:
            self._next_row += self.log_interval_steps

    def _write(self) -> None:
        with self.account.stage("logging"):
            for callback in self.callbacks:
                callback.before_row(self.result.elapsed_steps)
            self.logger.write(self.result.elapsed_steps)

    def _say_where_time_went(self) -> None:
        lines = self.account.lines()
        if lines:
            self.logger.notice("time went to\n" + "\n".join(lines))

    # ------------------------------------------------------------------ checkpoints

    @property
    def samplers(self) -> list[Sampler]:
        """The training and evaluation samplers."""
        return [self.sampler, *([self.eval_sampler] if self.eval_sampler else [])]

    def state(self) -> State:
        """Return the states of all parts, of the process's random generators, and the counters."""
        return self._state()

    def _state(self, *, replay: bool = True) -> State:
        return {
            **self.result.state(),
            "begun": self._begun,
            "next_row": self._next_row,
            "row": self._row.state(),
            "time": self.account.state(),
            "random": random_state(),
            **self._parts.state(replay=replay),
            **self.cycle.state(replay=replay),
        }

    def state_to_show(self) -> State:
        """Return the state for showing the policy, which may leave out what only training needs."""
        return self.state()

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`, from which `run` continues.

        Raises:
            ValueError: if the state does not fit a part of this runner. The message names the part.
                Other parts may already have been changed, so the runner must be discarded.
        """
        n = int(state.get("learners", {}).get("n", 1))
        if n != self.cycle.n_learners:
            raise ValueError(
                f"learners: expected as many as in the run that wrote the checkpoint, {n}, got "
                f"{self.cycle.n_learners}"
            )
        self._parts.load_state(state)
        # Parts first: they may raise, and then the counters are unchanged.
        self.result.load_state(state)
        # Computed, not loaded, because a resumed run may have another target.
        self.result.solved = self._is_solved()
        self._begun, self._next_row = bool(state["begun"]), int(state["next_row"])
        self._row.load_state(state["row"])
        self.account.load_state(state["time"])
        self.cycle.load_state(state)
        load_random_state(state["random"])  # last: loading may draw
        self._checkpoints.loaded(self)

    def save(self) -> None:
        """Write a checkpoint now or, during `run`, after the current batch.

        The state cannot be saved in the middle of a batch. During `run`, a failed write only causes
        a warning.

        Raises:
            OSError: if the checkpoint cannot be written.
            TypeError: if a part's state is not made of arrays and JSON values.
        """
        if self._running:
            self._save_wanted = True
        else:
            self._checkpoints.write(self)


class OnPolicyRunner(Runner):
    """Learns from each batch once, as PPO does, and samples the next batch with the new weights.

    See `Runner` for arguments and behaviour.
    """


def _check_bounds(
    n_steps: int,
    log_interval_steps: int,
    target_return: float | None,
    eval_sampler: Sampler | None,
) -> None:
    for name, value in (("n_steps", n_steps), ("log_interval_steps", log_interval_steps)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    # Comparisons with NaN are false, so such a run would silently never be solved.
    if target_return is not None and math.isnan(target_return):
        raise ValueError("target_return: expected a number or None, got nan")
    if target_return is not None and eval_sampler is None:
        raise ValueError("target_return: requires an eval_sampler, which measures the return")


def _check_callbacks(callbacks: Any) -> None:
    if not isinstance(callbacks, (list, tuple)):
        raise TypeError(f"callbacks: expected a list of Callbacks, got {callbacks!r}")
    for callback in callbacks:
        if not isinstance(callback, Callback):
            hint = "; call it" if isinstance(callback, type) else ""
            raise TypeError(f"callbacks: expected Callbacks, got {callback!r}{hint}")
    for i, callback in enumerate(callbacks):
        if any(callback is other for other in callbacks[:i]):
            raise ValueError(
                f"callbacks: expected different objects, got the same {type(callback).__name__} "
                "twice; pass it once, or create two"
            )
