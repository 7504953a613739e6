"""A schedule that acts for whichever environments are ready.

    MAKING --> RESETTING --> WAITING --- agent acts ---> STEPPING --> WAITING --> ...
      ^                         |                           |
      |                         +------- dies, hangs -------+
    PAUSED <------------------------- restarts left --------+--- none left ---> PARKED

    STEPPING --- an episode ends, and its EnvWorker has reached a limit ---> CLOSING --> MAKING

One thread does all of this. Groups that are made, reset or stepped are in `PendingRows`, and own their
columns of the samples meanwhile. In all other phases this thread owns them.
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

# Longest wait of one `advance`, and interval of the checks for environments that take too long.
_SLICE_S = 0.1
# Most time counted between two turns: this process may have been stopped, with its children.
_MAX_GAP_S = 1.0
# In these phases a group is in `PendingRows`.
_AWAITED = (GroupPhase.MAKING, GroupPhase.RESETTING, GroupPhase.STEPPING)

# A group's answer to a step: completed episodes and final observations.
_Answer: TypeAlias = tuple[CageGroup, list[TrajInfo], list[FinalObservation]]


class AsynchronousSchedule(Schedule):
    """Lets the agent act as soon as enough environments are ready, while the others keep stepping.

    The agent always receives blocks of `block` rows: `batch_size`, rounded up to a multiple of four. A block
    is filled up with copies, so that floating-point rounding does not depend on how many environments were
    ready. A SynchronousSchedule with a multiple of four environments rounds the same way.

    Args:
        environments: EnvWorkers, which are restarted when they die or hang; or cages with one group
            each, which reset automatically and whose errors end the worker. The schedule closes
            them.
        handler: handler of the agent. The schedule closes it.
        samples: buffer [T, B] that the environments write to. T can be small. Create them with
            `allocate_samples` from the cages, including those of EnvWorkers, and `step_transforms`.
        batch_size: number of ready environments at which the agent acts. It acts for fewer if fewer
            are alive, and for more if more are ready by then.
        max_wait_s: maximum time in seconds that the first ready environment waits for others.
        timeout_s: time-out in seconds for steps and resets of plain cages. An EnvWorker has its
            own.
        step_transforms: as for samplers, but applied to the columns of one cage at a time, each at its own
            row. Their `forget` is called when an environment is restarted.

    Attributes:
        parked: environments that used up their restarts, with the errors.
        restarts: number of processes that were restarted, for any reason.

    Raises:
        TypeError, ValueError: if the arguments do not fit together.
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
        # One cage represents all, as CageColumns has compared their spaces.
        check_action_space(handler.agent, cages[0].spaces.action, cages[0].spaces.name)
        for i, cage in enumerate(cages):
            # A cage's episodes can be collected only while none of its groups is being stepped.
            if len(cage.groups) != 1:
                raise ValueError(
                    f"cage {i} ({cage.spaces.name}): expected one group of environments, got "
                    f"{len(cage.groups)}; an AsynchronousSchedule waits for each cage separately"
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
        # Groups that are being made, reset or stepped. A group that fails is never in here: the
        # callers of `_fail` have removed it, or not added it yet.
        self._awaited: PendingRows[CageGroup] = PendingRows()
        self._waiting = WaitingGroups(self._groups, batch_size, max_wait_s)
        self._actor = GroupActor(handler, self._rows, batch_size)
        # Approximate seconds for which this process ran; see `_MAX_GAP_S`.
        self._clock_s = self._checked_s = 0.0
        self._looked = time.monotonic()
        self._is_copy = False
        own(self)

    @property
    def parked(self) -> dict[int, RestartsUsedUpError]:
        """See the attribute of the class."""
        # Also read by other threads, through `RolloutWorker.status`: `_groups` never changes, and
        # `EnvWorker.parked` is set once.
        return {
            group.columns.start: group.worker.parked
            for group in self._groups
            if group.worker is not None and group.worker.parked is not None
        }

    @property
    def restarts(self) -> int:
        """See the attribute of the class."""
        return sum(group.worker.restarts for group in self._groups if group.worker is not None)

    # ------------------------------------------------------------------ one turn

    def disown(self, why: str) -> None:
        """Disable this schedule in a forked child, as its environments belong to the parent."""
        self._is_copy = True

    def _check_own(self) -> None:
        # A forked copy would think the workers dead, and start others that write to the same samples.
        if self._is_copy:
            for group in self._groups:
                group.cage.check_open()

    def begin(self, collector: StepCollector) -> None:
        """Reset all environments."""
        self._check_own()
        self._collector = collector
        # Before the reset, which clears the recurrent state of the current mode only.
        self.handler.sample_mode()
        self.handler.reset()
        for group in self._groups:
            self._bind(group)

    def advance(self, *, may_act: bool) -> bool:
        """Receive answers, then act if enough environments are ready.

        Raises:
            RestartsUsedUpError: if all environments are parked.
            Exception: the error of an environment in a plain cage.
            ClosedError: in a forked copy of the process.
        """
        self._check_own()
        self._tick()
        self._restart()
        received = self._receive(self._patience_s(may_act))
        # After receiving: an answer that has arrived counts, however late it is read.
        self._end_late()
        if all(group.phase is GroupPhase.PARKED for group in self._groups):
            # Only groups with an EnvWorker are ever parked, so there is an error to raise.
            raise next(iter(self.parked.values()))
        if may_act and self._waiting.left_s() == 0:
            self._act()
            return True
        return received

    def _tick(self) -> None:
        now = time.monotonic()
        # A long inference counts less, too: time-outs may become longer, but never shorter.
        self._clock_s += min(now - self._looked, _MAX_GAP_S)
        self._looked = now

    def _patience_s(self, may_act: bool) -> float:
        now, patience_s = time.monotonic(), _SLICE_S
        if may_act:
            # No longer than ready environments may wait for others.
            patience_s = min(patience_s, self._waiting.left_s())
        for group in self._groups:
            if group.phase is GroupPhase.PAUSED:
                patience_s = min(patience_s, group.due_s - now)
        if not may_act and not len(self._awaited):
            return 0.0  # the caller waits for room in the queue
        return max(patience_s, 0.0)

    # ------------------------------------------------------------------ what has been answered

    def _receive(self, patience_s: float) -> bool:
        if not len(self._awaited):
            # Only pauses are left, and `patience_s` ends with the first of them.
            time.sleep(patience_s)
            return False
        monitor = self._collector.monitor
        answers: list[_Answer] = []
        # In two passes, so that the monitor can tell waiting from cutting fragments.
        with monitor.stage("receive"):
            # These rows are no longer awaited. If `_finish` raises for a plain cage, the other
            # answers are lost, but the worker ends with the error anyway.
            done = self._awaited.wait(patience_s)
            for group in done:
                self._finish(group, answers)
        with monitor.stage("hand_over"):
            for group, trajs, finals in answers:
                self._take_steps(group, finals)
                self._collector.add_episodes(trajs)
                if group.phase is GroupPhase.CLOSING:
                    # Now, as its memory held the steps until here.
                    self._retire(group)
        return bool(done)

    def _finish(self, group: CageGroup, answers: list[_Answer]) -> None:
        """Process the answer of a group, which then waits for an action, unless it has failed.

        answers: receives the answer if it is to a step.
        """
        # The construction is over, one way or the other: `_bind` reads how.
        if group.phase is GroupPhase.MAKING:
            self._bind(group)
            return
        stepped = group.phase is GroupPhase.STEPPING
        try:
            # Only these calls can raise because of the environment. Later errors are this process's own, and
            # must not restart the environment.
            # `finish_row` also gives the columns back to this thread.
            group.cage.finish_row()
            trajs = group.cage.collect_completed_trajs()
            finals = group.cage.collect_final_observations(truncated_only=not self.recurrent)
        except Exception as error:
            self._fail(group, error)
            return
        if stepped:
            answers.append((group, trajs, finals))
            if group.worker is not None:
                ended = bool(self._rows.done[group.t, group.columns].all())
                if group.worker.count_step(ended=ended):
                    group.phase = GroupPhase.CLOSING
                    return
        elif self.recurrent:
            # After a reset, perhaps of a new process: the agent must forget the old episode.
            self.handler.reset_one(np.arange(group.columns.start, group.columns.stop))
        self._waiting.add(group)

    def _take_steps(self, group: CageGroup, finals: Sequence[FinalObservation]) -> None:
        final = {found.column: self._rows.stored(found.observation) for found in finals}
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
                # Now, because the agent may act on the next episode in this very turn.
                self.handler.reset_one(np.array([column]))
        group.t += 1
        if group.t == self._rows.T:
            self._rows.wrap(group.columns)
            group.t = 0

    # ------------------------------------------------------------------ acting

    def _act(self) -> None:
        """Act for all waiting groups, in blocks, and start their steps."""
        # In the order of the answers, which is left to chance but changes no action: noise belongs
        # to steps, and all blocks have the same size.
        groups = self._waiting.take()
        for group in groups:
            # One version for all blocks: weights change only between two turns.
            group.version = self._collector.version
        with self._collector.monitor.stage("inference"):
            self._actor.act(groups, self._collector)
        with self._collector.monitor.stage("send"):
            for group in groups:
                try:
                    # From here on the columns, and the actions in them, belong to the cage.
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
        """Reset the environments of a new cage, once they are constructed."""
        group.t = 0
        # After a restart, running values of transforms, such as returns, are of a lost episode.
        self._rows.forget(group.columns)
        try:
            _ = group.cage.spaces  # raises the error of the construction
        except Exception as error:
            self._fail(group, error)
            return
        try:
            # A process answers this at once: it maps the memory, and its environment is made.
            group.cage.set_samples_buffer(self._samples, group.columns)
            group.cage.start_reset(0)
        # Other errors mean that the samples do not fit; a restart would not help.
        except WorkerError as error:
            self._fail(group, error)
        else:
            self._await(group, GroupPhase.RESETTING)

    def _end_late(self) -> None:
        """Fail groups that have exceeded their time-out."""
        if self._clock_s - self._checked_s < _SLICE_S:
            return
        self._checked_s = self._clock_s
        for group in self._groups:
            # In the other phases the environment waits for this process, or there is none.
            if group.phase not in (*_AWAITED, GroupPhase.CLOSING):
                continue
            limit_s = self._timeout_s if group.worker is None else group.worker.timeout_s
            if self._clock_s - group.since_s <= limit_s:
                continue
            if group.phase in _AWAITED:
                # Whatever its process still sends must not pass for an answer.
                self._awaited.remove(group)
            if group.worker is None:
                group.cage.close()  # kills a busy process
            self._fail(
                group,
                WorkerTimeoutError(
                    f"environment {group.columns.start} did not answer within {limit_s:g} s during "
                    f"{group.phase.value}"
                ),
            )

    def _fail(self, group: CageGroup, error: Exception) -> None:
        """Break off the fragments of a group, and schedule its restart."""
        if group.worker is None:
            raise error
        # First, because `EnvWorker.fail` closes the cage, which drops what the process left behind.
        trajs, finals = self._last_answer(group)
        if finals and group.phase is GroupPhase.STEPPING:
            # The episode ended, and then its reset failed: the step is complete.
            self._take_last_step(group, finals)
        # Steps before the failure are sent. The next one begins a new epoch, so the gap is visible.
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
        """Return the last results of a process that raised; nothing for a dead one."""
        if group.phase is GroupPhase.MAKING:
            return [], []  # asking would wait for the construction, and hold up all environments
        # An error only means that there is nothing to collect. The caller has the reason already.
        with suppress(Exception):
            return group.cage.collect_completed_trajs(), group.cage.collect_final_observations()
        return [], []

    def _take_last_step(self, group: CageGroup, finals: Sequence[FinalObservation]) -> None:
        for final in finals:
            # The failed reset has written no observation to that row.
            self._rows.write_observation(
                group.t + 1, final.column, self._rows.stored(final.observation)
            )
        self._take_steps(group, [final for final in finals if final.truncated or self.recurrent])

    def _retire(self, group: CageGroup) -> None:
        """Close the process of a group that has reached a limit."""
        assert group.worker is not None
        group.since_s = self._clock_s
        group.worker.retire()

    def _restart(self) -> None:
        """Restart the processes of groups whose pause is over, or which have closed."""
        now = time.monotonic()
        for group in self._groups:
            if group.worker is None:
                continue
            paused, closing = (
                group.phase is phase for phase in (GroupPhase.PAUSED, GroupPhase.CLOSING)
            )
            if not (paused and now >= group.due_s) and not (closing and group.worker.retired):
                continue
            try:
                # If this raises, the closed cage stays, which `_fail` can close again.
                group.worker.restart()
            except Exception as error:
                self._fail(group, error)
            else:
                self._await(group, GroupPhase.MAKING)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Close all environments, busy ones included, and the handler. Idempotent."""
        with ExitStack() as stack:
            # Pushed first, so it runs last, even if closing an environment raises.
            stack.callback(self.handler.close)
            # All are told to close before any is waited for.
            for group in self._groups:
                group.cage.start_close()
            for group in self._groups:
                stack.callback((group.worker or group.cage).close)
