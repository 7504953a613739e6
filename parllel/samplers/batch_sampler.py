"""Base class of samplers with everything but the schedule, so that a sampler is little more than its loop."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from parllel.agents.handler import Handler
from parllel.arrays.switching import SwitchingBlock
from parllel.buffers.batches import follows_batches, rebind, shown_number
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays
from parllel.cages.cage_interface import CageInterface
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError
from parllel.samplers.batch_state import (
    NO_STATE,
    check_edges,
    count_unsaved,
    edges_of,
    load_edges,
)
from parllel.samplers.cage_columns import CageColumns
from parllel.samplers.final_observations import (
    has_next_observations,
    places_of,
    stack_final,
    write_next_observations,
)
from parllel.samplers.lost_steps import LostSteps, restarts_of
from parllel.samplers.part_checks import (
    check_actions,
    check_handler,
    check_samples,
    check_transforms,
    claim_parts,
    moving_blocks,
    release_parts,
    warn_of_discounts,
)
from parllel.samplers.sampler import Sampler
from parllel.transforms.field_checks import check_fields
from parllel.transforms.final_chain import FinalChain
from parllel.transforms.transform import (
    BatchTransform,
    StepTransform,
    Transform,
    end_batch,
    note_transform,
    transform_batch,
)
from parllel.types import BatchSpec, State, overrides


class BatchSampler(Sampler):
    """Base class of samplers that own cages, a handler, transforms and a buffer.

    Subclasses decide the order of acting and stepping. Within `batch()`, a subclass calls `act`, or
    what `bound_act` returned, for each row of some columns. It steps all environments with what `bound_step`
    returned, or their groups one by one. After the last row it calls `bootstrap` for all columns and returns
    `finish()`.

    Args:
        batch_spec: T and B.
        cages: cages with B environments in total, whose resets match `resets_automatically`.
        handler: handler of the agent; bound to the buffer here.
        samples: the buffer to fill, [T, B].
        step_transforms: applied in order to each row before the agent sees it.
        batch_transforms: applied in order to the finished batch.
        decorrelation_steps: before the first batch each environment takes a random number of random
            steps, at most this many, so that episodes do not end simultaneously. They are not recorded.
        decorrelation_seed: seed for those numbers; required if `decorrelation_steps` is not 0.

    A buffer may hold several batches: the sides of switching arrays, or the windows of a replay.
    Each batch is written to the next of these. Cages, handler and transforms stay bound, and
    receive its number through `use_batch`. A part that does not override `use_batch` is bound
    again.

    Attributes:
        updates_statistics: whether step transforms update their statistics from finished batches. Rollout
            workers set it to False, because the trainer's transforms update the statistics.

    The garbage collector is off during a batch. After an error in the middle of a batch, the sampler can only
    be closed.

    If cages restart dead processes (see `RestartBudget`), the samples need fields `env.valid` and
    `env.aborted`. Row t of a column in which the process died holds no step: `env.valid` is false there,
    and reward and flags are zero. The episode ends with the row before, as if truncated, and `env.aborted`
    is true there.

    Raises:
        ValueError: if cages, agent, buffer and batch spec do not fit together.
        TypeError: if handler, buffer or a transform has the wrong type.
    """

    # Whether environments reset within the step that ends an episode, or wait for the next batch.
    resets_automatically: ClassVar[bool] = True

    def __init__(
        self,
        batch_spec: BatchSpec,
        cages: Sequence[CageInterface],
        handler: Handler,
        samples: Samples,
        step_transforms: Sequence[StepTransform] = (),
        batch_transforms: Sequence[BatchTransform] = (),
        *,
        decorrelation_steps: int = 0,
        decorrelation_seed: Any = None,
    ) -> None:
        check_samples(samples, batch_spec)
        check_handler(handler)
        if decorrelation_steps < 0:
            raise ValueError(f"decorrelation_steps: expected 0 or more, got {decorrelation_steps}")
        if decorrelation_steps and decorrelation_seed is None:
            raise ValueError("decorrelation_seed: expected a seed, as decorrelation_steps is not 0")
        name = type(self).__name__
        # Recomputing the recurrent state from row 0 would carry it across the ends of episodes within the
        # batch.
        if handler.agent.recurrent and self.resets_automatically:
            raise ValueError(
                f"{name} cannot run a recurrent agent ({type(handler.agent).__name__}), because environments "
                "reset in the middle of a batch. Build the cages with reset_automatically=False and use "
                "RecurrentSampler, which build_sampler chooses for such cages."
            )
        self.batch_spec = batch_spec
        self.cages = CageColumns(cages, batch_spec.B, reset_automatically=self.resets_automatically)
        check_actions(handler, cages[0])
        self.handler = handler
        self.samples = samples
        self.step_transforms = list(step_transforms)
        self.batch_transforms = list(batch_transforms)
        check_transforms(self.step_transforms, self.batch_transforms)
        # Checked now rather than in the first batch, which may be minutes later.
        check_fields(samples, self.transforms)
        warn_of_discounts(self.transforms)
        self.final_chain = FinalChain(samples, self.step_transforms)
        # None for cages without restarts.
        self._lost: LostSteps | None = None
        if restarts_of(cages) is not None:
            self._lost = LostSteps(samples, batch_spec, self.transforms)
        self._decorrelation = (decorrelation_steps, decorrelation_seed)
        self.updates_statistics = True
        self._started = self._within = False
        self._batches = 0
        self._timer: _BatchTimer | None = None
        # Environments that begin a new episode on resuming, because their state could not be saved.
        self._restarted: set[int] = set()
        self._unsaved: dict[str, int] = {}
        self._arrays = buffer_arrays(samples)
        self._moving = moving_blocks(self._arrays)
        # For the others, `rotate` does nothing.
        self._rotating = [
            array for array in self._arrays if array.padding or array.block in self._moving
        ]
        self._has_next_observations = has_next_observations(samples)
        self._bind()
        # Looked up once, as it is called for each batch.
        self._rebind = self._rebinds()

    def _bind(self) -> None:
        claim_parts(self, self.handler, self.samples, self.transforms)
        try:
            self.cages.bind(self.samples)
            self.handler.bind(self.samples)
            for transform in self.transforms:
                transform.bind(self.samples)
        except BaseException:
            release_parts(self)
            raise

    def _rebinds(self) -> list[Callable[[int], None]]:
        """Return functions that switch all bound parts to a batch, given its number."""
        samples = self.samples
        parts = self.cages.rebinds(samples)
        if follows_batches(self.handler):
            parts.append(self.handler.use_batch)
        else:
            parts.append(rebind(self.handler.bind, samples))
        for transform in self.transforms:
            if follows_batches(transform):
                parts.append(partial(transform.use_batch, samples))
            else:
                parts.append(rebind(transform.bind, samples))
        return parts

    # ------------------------------------------------------------------ a batch, from begin to end

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Context manager for collecting one batch, with the garbage collector off.

        Raises:
            WrongStateError: if an error ended the last batch halfway, so the next state is unknown.
            ClosedError: if a cage was closed or has failed, and in a fork of the owning process.
        """
        if self._within:
            raise WrongStateError(
                "sampler: an error ended the last batch halfway, so there is nothing to continue from; "
                "close this sampler and build another"
            )
        # Before anything is written: a fork of this process has the same batch, in shared memory.
        self.cages.check_open()
        collects = gc.isenabled()
        # A collection may run in the middle of a row, while workers wait.
        gc.disable()
        try:
            # An error in `_begin` is fatal too: arrays must not rotate twice.
            self._within = self._started
            self.handler.sample_mode()  # first: resets must clear the memory of sampling, not of evaluation
            self._begin()
            self._within = True
            self.handler.start_batch()
            if self._lost is not None:
                self._lost.start_batch()
            yield
        finally:
            if collects:
                gc.enable()

    def _begin(self) -> None:
        if self._started:
            self._rotate()
            self._restart_dead()
            if self._restarted or not self.resets_automatically:
                self._reset_ended()
            return
        if self._batches:  # of the run that is resumed without its environments
            self._rotate()
        self.cages.reset(0, all_envs=True)
        self.handler.reset()
        self._forget_restarted()
        most, seed = self._decorrelation
        if most:
            # Drawn here rather than by cages, so that the division of environments into cages changes
            # nothing.
            counts = np.random.default_rng(seed).integers(0, most + 1, self.batch_spec.B)
            self.cages.decorrelate(counts.tolist())
        self._started = True
        self.cages.crashes()  # no episode had begun

    def _rotate(self) -> None:
        """Go on to the next batch of the buffer."""
        for array in self._rotating:  # moves the observation after the last batch to row 0
            array.rotate()
        if self._moving:
            number = shown_number(self._moving)
            for use_batch in self._rebind:
                use_batch(number)

    def _restart_dead(self) -> None:
        """Restart processes that have died since the last batch; their environments begin new episodes."""
        if self._lost is not None:
            self.cages.restart_dead()
            self._see_crashes_between_batches()

    def _see_crashes_between_batches(self) -> list[int]:
        """Take note of crashes outside of rows; return their columns."""
        if self._lost is None:
            return []
        columns = [crash.column for crash in self.cages.crashes()]
        self._restarted.update(columns)
        self._lost.episodes += len(columns)
        return columns

    def _reset_ended(self) -> None:
        """Reset waiting environments into row 0."""
        # Read before the reset, which clears it.
        ended = np.flatnonzero(self.cages.needs_reset)
        if len(ended):
            self.cages.reset(0, all_envs=False)
            # Those of a process that died in this reset began new episodes too.
            crashed = self._see_crashes_between_batches()
            self.handler.reset_one(np.union1d(ended, crashed).astype(np.intp) if crashed else ended)
        self._forget_restarted()

    def _forget_restarted(self) -> None:
        """Tell the transforms which environments began new episodes on resuming."""
        self._forget(sorted(self._restarted))
        self._restarted.clear()

    def _forget(self, columns: list[int]) -> None:
        if columns:
            for transform in self.transforms:
                transform.forget(np.array(columns, np.intp))

    def collect_timed_batch(
        self, elapsed_steps: int
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Like `collect_batch`, but also return the time spent in each part, in seconds.

        Where agent and environments run in one compiled call, the agent's time counts as the environments'.
        """
        timer = self._timer = _BatchTimer()
        try:
            samples, trajs = self.collect_batch(elapsed_steps)
        finally:
            self._timer = None
        return samples, trajs, timer.seconds()

    def act(self, t: int, columns: slice) -> None:
        """Transform row `t` of `columns`, and write the agent's action and info for it."""
        timer = self._timer
        began = 0.0 if timer is None else perf_counter()
        if self.step_transforms:
            self.transform_row(t, columns)
        self.handler.step(t, columns)
        if timer is not None:
            timer.add_inference(began)

    def bound_act(self, columns: slice) -> Callable[[int], None]:
        """Return a function that calls `act(t, columns)` for a row of this batch.

        Call it within `batch()`.
        """
        if overrides(self, BatchSampler, "act"):
            return partial(self.act, columns=columns)
        step, transform_row, timer = (
            self.handler.bound_step(columns),
            self.transform_row,
            self._timer,
        )
        if timer is None and not self.step_transforms:
            return step
        transforms = bool(self.step_transforms)

        def act(t: int) -> None:
            began = 0.0 if timer is None else perf_counter()
            if transforms:
                transform_row(t, columns)
            step(t)
            if timer is not None:
                timer.add_inference(began)

        return act

    def bound_step(self) -> Callable[[int], None]:
        """Return a function that steps all environments with the actions of a row of this batch.

        Call it within `batch()`.
        """
        # `finish` asks for no other final observations, unless a subclass does.
        overridden = overrides(self, BatchSampler, "finish", "_write_final_values")
        truncated_only = not (self._has_next_observations or overridden)
        return self.cages.all_envs.bound_step(truncated_only=truncated_only)

    def bound_rollout(self) -> Callable[[int], None] | None:
        """Return a function that fills rows 0 to T - 1 of this batch in compiled code, given T.

        None if environments or agent are not compiled, or something wants to see each row. Call it
        within `batch()`.
        """
        if self.step_transforms or overrides(self, BatchSampler, "act", "bound_act", "bound_step"):
            return None
        return self.cages.all_envs.bound_rollout(self.handler.compiled_acts)

    def transform_row(self, t: int, columns: slice) -> None:
        """Apply the step transforms to row `t` of `columns`."""
        for transform in self.step_transforms:
            try:
                transform.transform_step(self.samples, t, columns)
            except Exception as error:
                note_transform(error, transform, f"transform_step, row {t}")
                raise

    def bootstrap(self, columns: slice) -> None:
        """Write the agent's value estimate of the observation that follows the batch."""
        began, T = perf_counter(), self.batch_spec.T
        self.transform_row(T, columns)
        self.handler.bootstrap_value(T, columns)
        if self._timer is not None:
            self._timer.add_inference(began)

    def finish(self) -> tuple[Samples, list[TrajInfo]]:
        """Complete the batch; return it and the episodes that ended."""
        began = perf_counter()
        # All rows are complete: an error from here on does not prevent the next batch.
        self._within = False
        self._batches += 1
        # Before `end_batch`, so that final observations are transformed with the same statistics as the rows
        # of this batch. Batch transforms come last, as advantage estimates need these values.
        self._write_final_values()
        if self.updates_statistics:
            end_batch(self.step_transforms, self.samples)
        transform_batch(self.batch_transforms, self.samples)
        trajs = self.cages.completed_trajs()
        if self._timer is not None:
            self._timer.add_transforms(began)
        return self.samples, trajs

    def _write_final_values(self) -> None:
        wants_all = self._has_next_observations
        final = self.cages.final_observations(truncated_only=not wants_all)
        if self._lost is not None and (crashes := self.cages.crashes()):
            first, waiting = self._lost.mark_all(crashes, final)
            self._forget(first)
            self._restarted.update(waiting)
        if wants_all:
            write_next_observations(self.samples, final)
            final = [one for one in final if one.truncated]
        if not final:
            return
        observation = stack_final(final, self.samples.env.observation)
        self.handler.final_value(*places_of(final), self.final_chain.as_seen(observation))

    # ------------------------------------------------------------------ the transforms, and the end

    @property
    def transforms(self) -> list[Transform]:
        """All transforms, in order."""
        return [*self.step_transforms, *self.batch_transforms]

    @property
    def stats(self) -> dict[str, Any]:
        """The `stats` of all transforms, keyed as `Class/name`.

        With cages that restart dead processes also `restarts`, the number of restarts so far, and
        `crashed_episodes`, the number of episodes that were lost. These are not in any other statistics.
        """
        stats = {
            f"{type(transform).__name__}/{name}": value
            for transform in self.transforms
            for name, value in transform.stats.items()
        }
        if self._lost is not None:
            stats["restarts"] = restarts_of(self.cages.cages)
            stats["crashed_episodes"] = self._lost.episodes
        return stats

    def overview(self) -> str:
        """Return the number of restarts, with the reason of the last one."""
        restarts = restarts_of(self.cages.cages)
        if not restarts or self._lost is None:
            return ""
        reasons = [cage.last_crash for cage in self.cages.cages if cage.last_crash]
        return f"{restarts} restarts, {self._lost.episodes} crashed episodes; {reasons[-1]}"

    def state(self, *, environments: bool = True) -> State:
        """Return the states of transforms and environments, and the rows with which the next batch begins.

        Before the first batch, the environments' states are read but not returned, so that an
        environment that cannot be saved raises its error early.

        Raises:
            WrongStateError: if an error ended the last batch halfway.
            TypeError: if the state of an environment or TrajInfo contains anything but arrays and
                JSON values.
        """
        if self._within:
            raise WrongStateError(
                "sampler: an error ended the last batch halfway, so there is no state to save"
            )
        state: State = {
            "transforms": [transform.state() for transform in self.transforms],
            "transform_classes": self._transform_classes(),
            "batches": self._batches,
            "batch_number": shown_number(self._moving),
        }
        if environments:
            self._restart_dead()  # since the batch; such an environment has no state
            states = self.cages.states()
            self._unsaved = count_unsaved(states)
            if self._started:
                state["environments"] = states
                state["edges"] = edges_of(self.samples)
        return state

    def _transform_classes(self) -> list[str]:
        return [type(transform).__name__ for transform in self.transforms]

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if it belongs to other transforms, environments or buffers.
        """
        # Compared by class and order, or a state could be loaded into the wrong transform.
        classes = self._transform_classes()
        found = state.get("transform_classes")
        if found != classes:
            raise ValueError(f"transforms: expected the states of {classes}, got those of {found}")
        for transform, one in zip(self.transforms, state["transforms"], strict=True):
            transform.load_state(one)
        self._batches = int(state["batches"])
        self._show(int(state.get("batch_number", 0)))
        if "environments" in state:
            self._load_environments(state["environments"], state["edges"])
        elif self._batches and not self._started:
            # The number of batches salts the seeds, so that the run does not repeat its first episodes.
            self.cages.load_states([NO_STATE] * self.batch_spec.B, self._batches)
            self._restarted.update(range(self.batch_spec.B))

    def _show(self, number: int) -> None:
        """Show the batch of the buffer that was collected last, which the next one follows.

        A replay that was restored holds it. The sides of switching arrays hold nothing yet.
        """
        for block in self._moving:
            if not isinstance(block, SwitchingBlock):
                block.show(number % block.n_windows)

    def _load_environments(self, states: list[State], edges: dict[str, Any]) -> None:
        # Checked before any environment is changed.
        check_edges(self.samples, edges)
        self.cages.load_states(states, self._batches)
        load_edges(self.samples, edges)
        self._unsaved = count_unsaved(states)
        # With automatic resets, only environments whose process was restarted have a state and wait.
        waits = self.resets_automatically
        self._restarted = {
            b
            for b, one in enumerate(states)
            if one["env"] is None or (waits and one["needs_reset"])
        }
        # The environments are in the middle of episodes, so the next batch must not reset them.
        self._started, self._within = True, False

    @property
    def unsaved_environments(self) -> dict[str, int]:
        """Number of environments that begin new episodes on resume, keyed by the class that cannot save."""
        return dict(self._unsaved)

    def close(self) -> None:
        """Close the cages and the handler. Idempotent."""
        release_parts(self)
        try:
            self.cages.close()
        finally:
            self.handler.close()


class _BatchTimer:
    """Seconds of one batch, by part.

    Used only by `collect_timed_batch`, as reading the clock twice per row takes time itself.
    """

    def __init__(self) -> None:
        # The monotonic clock with the finest resolution.
        self._began = perf_counter()
        self._inference = self._transforms = 0.0

    def add_inference(self, began: float) -> None:
        """Add the time since `began` to the agent and the step transforms."""
        self._inference += perf_counter() - began

    def add_transforms(self, began: float) -> None:
        """Add the time since `began` to the work on the finished batch."""
        self._transforms += perf_counter() - began

    def seconds(self) -> dict[str, float]:
        """Return the seconds since the timer was made, by part.

        `inference` is the agent and the step transforms, `transforms` the work on the finished batch.
        `environments` is the rest: stepping environments in this process, or waiting for others.
        """
        # Computed as the rest: measuring it would read the clock twice more per row.
        total = perf_counter() - self._began
        return {
            "inference": self._inference,
            "environments": max(total - self._inference - self._transforms, 0.0),
            "transforms": self._transforms,
        }
