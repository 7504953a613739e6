"""Act for whichever environments have answered.

    MAKING --> RESETTING --> WAITING --- agent acts ---> STEPPING --> WAITING --> ...
      ^                         |                           |
      |                         +------- dies, hangs -------+
    PAUSED <------------------------- restarts left --------+--- none left ---> PARKED

One thread does all of this. What is made, reset or stepped is in `PendingRows`, all else is not; a row of the
samples belongs to the environment as long as it is there.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TypeAlias

import numpy as np

from parllel.agents.action_check import check_action_space
from parllel.agents.handler import Handler
from parllel.buffers.samples import Samples
from parllel.cages.cage_interface import CageInterface
from parllel.cages.stepping.pending_rows import PendingRows
from parllel.cages.stepping.step_result import FinalObservation
from parllel.cages.traj_info import TrajInfo
from parllel.distributed.rollouts.arguments import check_kind, check_timeout
from parllel.distributed.rollouts.cage_group import CageGroup, GroupActor, GroupPhase, WaitingGroups
from parllel.distributed.rollouts.env_worker import EnvWorker
from parllel.distributed.rollouts.schedule import Schedule
from parllel.distributed.rollouts.single_rows import SingleRows
from parllel.distributed.rollouts.step_collector import StepCollector
from parllel.errors import RestartsUsedUpError, WorkerError, WorkerTimeoutError
from parllel.samplers.cage_columns import CageColumns
from parllel.samplers.part_checks import check_handler, check_transforms
from parllel.system.processes.owned import own
from parllel.transforms.transform import StepTransform

# The longest wait of one `advance`, and how often it is looked for environments that take too long.
_SLICE_S = 0.1
# Time between two looks counts for no more: this process may have been stopped, and its children with it.
_MAX_GAP_S = 1.0

# What a group answered to a step: episodes that ended, and last observations.
_Answer: TypeAlias = tuple[CageGroup, list[TrajInfo], list[FinalObservation]]


class AsynchronousSchedule(Schedule):
    """Let the agent act as soon as enough environments have answered, while the others go on.

    The agent is always given blocks of `block` rows: `batch_size`, rounded up to a multiple of four. What is
    left over is filled with copies. So what is rounded does not depend on how many environments were ready;
    a RowsSchedule whose number of environments is a multiple of four rounds in the same way.

    Args:
        environments: `EnvWorker`, which are started again when they die or hang; or cages of one group each,
            which reset automatically, and whose errors end the worker. They are closed with the schedule.
        handler: of the agent; closed with the schedule.
        samples: [T, B], what the environments write to; T can be small. `allocate_samples` makes them for the
            cages, those of EnvWorkers included, and `step_transforms`.
        batch_size: how many environments the agent acts for at once, if as many are alive; more than have
            answered are waited for, and more than these act if more have answered.
        max_wait_s: how long the first that has answered waits for the others.
        timeout_s: for steps and resets in plain cages; an EnvWorker has its own.
        step_transforms: as for samplers, but applied to the columns of one cage at a time, each at its own
            row; their `forget` is called when an environment is started again.

    Attributes:
        parked: environments that used up their restarts, and the error that says so.
        restarts: how many processes were started anew.

    Raises:
        TypeError, ValueError: if the parts do not fit.
    """

    def __init__(
        self,
        environments: Sequence[EnvWorker | CageInterface],
        handler: Handler,
        samples: Samples,
        *,
        batch_size: int,
        max_wait_s: float,
        timeout_s: float = 60.0,
        step_transforms: Sequence[StepTransform] = (),
    ) -> None:
        check_handler(handler)
        check_kind("samples", samples, Samples)
        for i, env in enumerate(environments):
            if not isinstance(env, (EnvWorker, CageInterface)):
                raise TypeError(f"environments[{i}]: expected an EnvWorker or a cage, got {env!r}")
        check_transforms(step_transforms)
        self.step_transforms = list(step_transforms)
        self._rows = SingleRows(samples, self.step_transforms)
        cages = [env.cage if isinstance(env, EnvWorker) else env for env in environments]
        placed = CageColumns(cages, self._rows.B, reset_automatically=True)
        # One cage stands for all, as their spaces have just been compared.
        check_action_space(handler.agent, cages[0].spaces.action, cages[0].spaces.name)
        for i, cage in enumerate(cages):
            # Their episodes can be collected only while no group is being stepped.
            if len(cage.groups) != 1:
                raise ValueError(
                    f"cage {i} ({cage.spaces.name}): expected one group of environments, got "
                    f"{len(cage.groups)}; a AsynchronousSchedule waits for each cage by itself"
                )
        self.n_environments = self._rows.B
        self.handler = handler
        self.recurrent = handler.agent.recurrent
        self._timeout_s = check_timeout("timeout_s", timeout_s)
        self._samples = samples
        self._groups = [
            CageGroup(env, columns)
            for env, columns in zip(environments, placed.columns, strict=True)
        ]
        self._awaited: PendingRows[CageGroup] = PendingRows()
        self._waiting = WaitingGroups(self._groups, batch_size, max_wait_s)
        self._actor = GroupActor(handler, self._rows, batch_size)
        # Seconds in which this process ran, more or less; see `_MAX_GAP_S`.
        self._clock_s = self._checked_s = 0.0
        self._looked = time.monotonic()
        self._is_copy = False
        own(self)

    @property
    def parked(self) -> dict[int, RestartsUsedUpError]:
        """See the class."""
        return {
            group.columns.start: group.worker.parked
            for group in self._groups
            if group.worker is not None and group.worker.parked is not None
        }

    @property
    def restarts(self) -> int:
        """See the class."""
        return sum(group.worker.restarts for group in self._groups if group.worker is not None)

    # ------------------------------------------------------------------ one turn

    def disown(self, why: str) -> None:
        """Step no environments of other processes, in a forked copy of the process that they belong to."""
        self._is_copy = True

    def _check_own(self) -> None:
        # A copy would take the workers for dead, and start others for the batch that both have.
        if self._is_copy:
            for group in self._groups:
                group.cage.check_open()

    def begin(self, collector: StepCollector) -> None:
        """Reset all environments."""
        self._check_own()
        self._collector = collector
        self.handler.sample_mode()
        self.handler.reset()
        for group in self._groups:
            self._bind(group)

    def advance(self, *, may_act: bool) -> bool:
        """Take what has been answered, then act if it is time to.

        Raises:
            RestartsUsedUpError: if all environments are parked.
            Exception: what an environment of a plain cage raised.
            ClosedError: in a forked copy of the process.
        """
        self._check_own()
        self._tick()
        self._restart()
        received = self._receive(self._patience_s(may_act))
        self._end_late()
        if all(group.phase is GroupPhase.PARKED for group in self._groups):
            raise next(iter(self.parked.values()))
        if may_act and self._waiting.left_s() == 0:
            self._act()
            return True
        return received

    def _tick(self) -> None:
        now = time.monotonic()
        self._clock_s += min(now - self._looked, _MAX_GAP_S)
        self._looked = now

    def _patience_s(self, may_act: bool) -> float:
        now, patience_s = time.monotonic(), _SLICE_S
        if may_act:
            # Not longer than those that have answered may wait for others.
            patience_s = min(patience_s, self._waiting.left_s())
        for group in self._groups:
            if group.phase is GroupPhase.PAUSED:
                patience_s = min(patience_s, group.due_s - now)
        if not may_act and not len(self._awaited):
            return 0.0  # the caller waits, for room in the queue
        return max(patience_s, 0.0)

    # ------------------------------------------------------------------ what has been answered

    def _receive(self, patience_s: float) -> bool:
        if not len(self._awaited):
            # Only pauses are left, whose ends are known: nothing could come earlier.
            time.sleep(patience_s)
            return False
        monitor = self._collector.monitor
        answers: list[_Answer] = []
        with monitor.stage("receive"):
            done = self._awaited.wait(patience_s)
            for group in done:
                self._finish(group, answers)
        with monitor.stage("hand_over"):
            for group, trajs, finals in answers:
                self._take_steps(group, finals)
                self._collector.add_episodes(trajs)
        return bool(done)

    def _finish(self, group: CageGroup, answers: list[_Answer]) -> None:
        """Take the answer of a group, which waits for an action then, unless it has failed.

        answers: gets this one, if it is that to a step.
        """
        if group.phase is GroupPhase.MAKING:
            self._bind(group)
            return
        stepped = group.phase is GroupPhase.STEPPING
        try:
            # All that may raise for what the environment did; what comes of it later is this side's fault.
            group.cage.finish_row()
            trajs = group.cage.collect_completed_trajs()
            finals = group.cage.collect_final_observations(truncated_only=not self.recurrent)
        except Exception as error:
            self._fail(group, error)
            return
        if stepped:
            answers.append((group, trajs, finals))
        elif self.recurrent:
            self.handler.reset_one(np.arange(group.columns.start, group.columns.stop))
        self._waiting.add(group)

    def _take_steps(self, group: CageGroup, finals: Sequence[FinalObservation]) -> None:
        final = {one.column: self._rows.stored(one.observation) for one in finals}
        for column in group.numbers:
            self._collector.add_row(
                self._rows,
                group.t,
                column,
                group.version,
                final_observation=final.get(column),
                rnn_state=group.states.get(column),
            )
            if self.recurrent and self._rows.done[group.t, column]:
                self.handler.reset_one(np.array([column]))
        group.t += 1
        if group.t == self._rows.T:
            self._rows.wrap(group.columns)
            group.t = 0

    # ------------------------------------------------------------------ acting

    def _act(self) -> None:
        """Let the agent act for all that wait, in blocks, and start their steps."""
        groups = self._waiting.take()
        for group in groups:
            # Before the decision, and for all blocks of it: weights change only between two turns.
            group.version = self._collector.version
        with self._collector.monitor.stage("inference"):
            self._actor.act(groups, self._collector)
        with self._collector.monitor.stage("send"):
            for group in groups:
                try:
                    group.cage.start_row(group.t)
                except Exception as error:
                    self._fail(group, error)
                else:
                    self._await(group, GroupPhase.STEPPING)

    def _await(self, group: CageGroup, phase: GroupPhase) -> None:
        group.phase, group.since_s = phase, self._clock_s
        self._awaited.add(group, group.cage)

    # ------------------------------------------------------------------ failures and restarts

    def _bind(self, group: CageGroup) -> None:
        """Reset the environments of a new cage, once they are made."""
        group.t = 0
        self._rows.forget(group.columns)
        try:
            _ = group.cage.spaces  # raises what went wrong in the construction
        except Exception as error:
            self._fail(group, error)
            return
        try:
            group.cage.set_samples_buffer(self._samples, group.columns)
            group.cage.start_reset(0)
        # Anything else is wrong with the samples, and would be again after a restart.
        except WorkerError as error:
            self._fail(group, error)
        else:
            self._await(group, GroupPhase.RESETTING)

    def _end_late(self) -> None:
        """Give up environments that have taken too long."""
        if self._clock_s - self._checked_s < _SLICE_S:
            return
        self._checked_s = self._clock_s
        for group in self._groups:
            if group.phase not in (GroupPhase.MAKING, GroupPhase.RESETTING, GroupPhase.STEPPING):
                continue
            limit_s = self._timeout_s if group.worker is None else group.worker.timeout_s
            if self._clock_s - group.since_s <= limit_s:
                continue
            self._awaited.remove(group)
            if group.worker is None:
                group.cage.close()  # kills what is busy
            self._fail(
                group,
                WorkerTimeoutError(
                    f"environment {group.columns.start} did not answer within {limit_s:g} s during "
                    f"{group.phase.value}"
                ),
            )

    def _fail(self, group: CageGroup, error: Exception) -> None:
        """Break off the fragments of a group, and plan its restart."""
        if group.worker is None:
            raise error
        trajs, finals = self._last_answer(group)
        if finals and group.phase is GroupPhase.STEPPING:
            # The episode had ended before its reset failed: the step is whole, and says how.
            self._take_last_step(group, finals)
        for column in group.numbers:
            self._collector.break_off(column)
        self._collector.add_episodes(trajs)
        pause_s = group.worker.fail(error)
        if pause_s is None:
            group.phase = GroupPhase.PARKED
            warnings.warn(str(group.worker.parked), RuntimeWarning, stacklevel=2)
        else:
            group.phase, group.due_s = GroupPhase.PAUSED, time.monotonic() + pause_s

    def _last_answer(self, group: CageGroup) -> tuple[list[TrajInfo], list[FinalObservation]]:
        """Return what a process that raised could still hand over; a dead one could not."""
        with suppress(Exception):
            return group.cage.collect_completed_trajs(), group.cage.collect_final_observations()
        return [], []

    def _take_last_step(self, group: CageGroup, finals: Sequence[FinalObservation]) -> None:
        for one in finals:
            # No other episode follows in this process, so nothing else was written there.
            self._rows.write_observation(
                group.t + 1, one.column, self._rows.stored(one.observation)
            )
        self._take_steps(group, [one for one in finals if one.truncated or self.recurrent])

    def _restart(self) -> None:
        """Start the processes of groups whose pause is over."""
        now = time.monotonic()
        for group in self._groups:
            if group.phase is not GroupPhase.PAUSED or now < group.due_s or group.worker is None:
                continue
            try:
                group.worker.restart()
            except Exception as error:
                self._fail(group, error)
            else:
                self._await(group, GroupPhase.MAKING)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Close all environments, those that are busy at once, and the handler; may be called twice."""
        with ExitStack() as stack:
            stack.callback(self.handler.close)
            for group in self._groups:
                group.cage.start_close()
            for group in self._groups:
                stack.callback((group.worker or group.cage).close)
