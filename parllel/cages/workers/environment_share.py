"""The environments of one process of a SynchronizedProcessCage, for every group.

    this process, a worker or main      memory shared by all processes of the cage
    run: a row                     <--  action of its columns           written by the agent, or a policy here
                                   -->  observation, reward, flags of its columns
                                   -->  needs_reset of its columns      read by main between rows
    after_row, in a rollout        -->  number of finished rows         read by main after a long wait

    main: a call                   -->  calls[op], in every process     results return as answers

No other process writes these columns, so there are no locks. The done word, posted after all of this, tells
the others when they may read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.buffers.samples import Samples
from parllel.cages.spaces import Spaces, check_alike
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import RowInfos
from parllel.cages.stepping.trajectories import Packed
from parllel.cages.workers.bound_places import Bound, places_of
from parllel.cages.workers.control import (
    RANDOM,
    RESET_ALL,
    RESET_ENDED,
    RESET_SOME,
    ROLLOUT,
    STEP,
    STEP_OR_RESET,
)
from parllel.cages.workers.info_messages import InfoPacker
from parllel.cages.workers.remote_cage import METHOD
from parllel.cages.workers.worker_policy import (
    MakePolicy,
    WorkerPolicy,
    make_policy,
    rebind_policy,
)
from parllel.errors import add_note, first_of
from parllel.types import State, Tree


class EnvironmentShare:
    """The environments of one process, by group.

    Args:
        makes: for each group, a function that makes its environments; None for a group without
            environments.
        shares: the columns of each group in this process, relative to the cage's first.
        needs_reset, which: [n] flags of the whole cage, in shared memory. Main writes `which` before the
            command RESET_SOME.
        reset_automatically: the setting of the environments.
        after_row: function called after each row of a rollout, with the group and the number of
            finished rows.
        lost: groups whose episodes were lost with another process. Their first row, unless it is a reset, is
            one without steps.

    Attributes:
        batch: number of the current batch.
        lost_row: whether the last row of a group was the first since the episodes of `lost` were lost.
    """

    def __init__(
        self,
        makes: Sequence[Callable[[], RowEnvironments] | None],
        shares: Sequence[slice],
        needs_reset: NDArray[np.bool_],
        which: NDArray[np.bool_],
        *,
        reset_automatically: bool,
        after_row: Callable[[int, int], None],
        lost: Sequence[int] = (),
    ) -> None:
        self._lost = set(lost)
        self.lost_row = False
        if lost:
            # Shadows the method only until the first row of each group: other rows cost nothing more.
            self.run = self._run_lost  # type: ignore[method-assign]
        self._shares = shares
        self._needs_reset, self._which = needs_reset, which
        # One for each group, as the infos of their rows have different layouts.
        self._packers = [InfoPacker() for _ in makes]
        self._packed = [b""] * len(makes)
        self._automatic = reset_automatically
        self._after_row = after_row
        self._rows: list[Rows] = []
        self._of_policies: list[Callable[[int], None]] = []
        self.batch = 0
        # One per group, as groups may be at different rows at the same time.
        self._policies: list[WorkerPolicy | None] = [None] * len(makes)
        self.groups: list[RowEnvironments | None] = []
        # Functions that step a row of each group in the current batch, made when they are first used.
        self._steps: list[Callable[[int], None] | None] = [None] * len(makes)
        try:
            for make in makes:
                # A group with fewer columns than processes leaves some processes without a share.
                self.groups.append(None if make is None else make())
            self._check_spaces()
        except BaseException:
            self.close()  # environments already made may hold windows, files or processes
            raise
        # Calls by name: main can call nothing that is not listed here.
        self.calls: dict[str, Callable[..., Any]] = {
            "bind": self.bind,
            "set_policy": self.set_policy,
            "collect": self.collect,
            "decorrelate": self.decorrelate,
            "states": self.states,
            "load_states": self.load_states,
            "set_reset": self.set_reset,
            "infos": self.infos_again,
            "get": self.get,
            "set": self.set,
            "set_each": self.set_each,
            "apply": self.apply,
            "method": self.method,
            "close": self.close,
            "nothing": lambda: None,  # replaces a request that could not be pickled
        }

    @property
    def made(self) -> tuple[int, Spaces]:
        """The number of the first environment, and the spaces of all environments."""
        first = next(envs for envs in self.groups if envs is not None)
        return first.index, first.spaces

    def _check_spaces(self) -> None:
        # EnvStepper compares the spaces within a group; groups are compared here, as they share a batch and
        # an agent.
        groups = [envs for envs in self.groups if envs is not None]
        for envs in groups:
            check_alike(envs.spaces, groups[0].spaces, envs.index, groups[0].index)

    def run(self, operation: int, group: int, row: int) -> None:
        """Run one row of a group."""
        # The caller posts its done word all the same: main waits for one from every worker.
        envs = self.groups[group]
        if envs is None:
            return
        if operation == STEP:
            step = self._steps[group]
            if step is None:
                step = self._steps[group] = envs.bound_step()
            step(row)
            # The usual case: with automatic resets, a step never changes `needs_reset`.
            if self._automatic:
                return
        elif operation == ROLLOUT:
            self._roll_out(group, envs, row)
        elif operation == RANDOM:
            envs.random_row(row)
        elif operation == STEP_OR_RESET:
            envs.step_or_reset_row(row)
        elif operation == RESET_SOME:
            envs.reset_rows(row, which=self._which[self._shares[group]])
        else:
            assert operation in (RESET_ALL, RESET_ENDED)
            envs.reset_rows(row, all_envs=operation == RESET_ALL)
        # Before the caller posts the done word, after which main reads the flags.
        if not self._automatic or operation in (RESET_ALL, RESET_ENDED, RESET_SOME):
            self._needs_reset[self._shares[group]] = envs.needs_reset

    def bound_step(self, group: int) -> Callable[[int], None] | None:
        """Return a function that steps a row of a group in the current batch; None without environments."""
        envs = self.groups[group]
        if envs is None:
            return None
        step = envs.bound_step()
        if self._automatic:
            return step
        needs_reset, columns, mine = self._needs_reset, self._shares[group], envs.needs_reset

        def step_row(t: int) -> None:
            step(t)
            needs_reset[columns] = mine

        return step_row

    def _run_lost(self, operation: int, group: int, row: int) -> None:
        """As `run`, in a process that replaces another until each group has had a row."""
        self.lost_row = lost = group in self._lost
        self._recover(group)
        envs = self.groups[group]
        if envs is None or not lost:
            EnvironmentShare.run(self, operation, group, row)
        elif operation in (RESET_ALL, RESET_ENDED, RESET_SOME):
            # No episode goes on, so the others need a reset too.
            EnvironmentShare.run(self, RESET_ALL, group, row)
        else:
            envs.lose_row(row)
            self._needs_reset[self._shares[group]] = envs.needs_reset

    def _recover(self, group: int) -> None:
        self._lost.discard(group)
        # Only then: the rows of other groups come this way until they have had their first.
        if not self._lost and "run" in vars(self):
            del self.run

    def _roll_out(self, group: int, envs: RowEnvironments, T: int) -> None:
        """Act and step for `T` rows without waiting for any other process."""
        policy = self._policies[group]
        assert policy is not None
        # Tells who failed: an environment's exception names it already, a policy's gets a note.
        acting, t = True, -1
        try:
            policy.start_batch()
            find_acts = getattr(policy, "compiled_acts", None)
            roll_out = None if find_acts is None else envs.bound_rollout(find_acts)
            if roll_out is not None:
                acting = False
                roll_out(T, partial(self._after_row, group))
                return
            step_row = envs.bound_step()
            for t in range(T):
                acting = True
                policy.step(t)
                acting = False
                step_row(t)
                # Reports progress, by which main distinguishes a slow rollout from one that hangs.
                self._after_row(group, t + 1)
        except Exception as error:
            if acting:
                doing = "start_batch" if t < 0 else f"row {t}"
                add_note(error, f"in the policy, during {doing}")
            raise

    def take_infos(self, group: int) -> RowInfos:
        """Return the infos of a group's last row."""
        envs = self.groups[group]
        infos = None if envs is None else envs.take_infos()
        return RowInfos([], {}) if infos is None else infos

    def packed_infos(self, group: int) -> bytes:
        """Return the infos of a group's last row as bytes, and keep them for `infos_again`."""
        self._packed[group] = packed = self._packers[group].pack(self.take_infos(group))
        return packed

    def infos_again(self, group: int) -> bytes:
        """Return what `packed_infos` returned, for a message that fits no mail box."""
        return self._packed[group]

    def set_reset(
        self, group: int, which: Sequence[bool], seeds: Sequence[Any] | None, options: Any
    ) -> None:
        """Set seeds and options of a group's next reset; both sequences are of the whole cage."""
        envs, share = self.groups[group], self._shares[group]
        if envs is not None:
            envs.set_reset(
                np.array(which[share], bool), None if seeds is None else seeds[share], options
            )

    def prepare(self, group: int, row: int) -> None:
        """Do work ahead of time after a row, while no process waits for this one."""
        envs = self.groups[group]
        if envs is not None:
            envs.prepare(row)

    def set_policy(self, make: MakePolicy) -> None:
        """Make a policy for each group; `bind` must follow."""
        # Made here by the function that was sent, as a policy may hold objects that cannot be pickled.
        # If one of them raises, the old ones stay, but cannot act: main has unbound the buffer.
        self._policies = [None if envs is None else make_policy(make) for envs in self.groups]

    def bind(
        self, samples: Samples | None, action: Tree, fields: dict[str, Tree], lo: int
    ) -> list[Bound]:
        """Bind all groups; return the places of their rows for main to check.

        samples: the whole buffer, for policies; None without policies.
        """
        bound = []
        # Cleared first: if binding fails half-way, a later change of batch must not touch the old buffer.
        self._rows, self._of_policies = [], []
        self._forget_steps()
        for envs, policy, share in zip(self.groups, self._policies, self._shares, strict=True):
            columns = slice(lo + share.start, lo + share.stop)
            if envs is not None:
                rows = envs.bind(action, NamedArrayTuple(**fields), columns)
                self._rows.append(rows)
                self.batch = rows.batch
                # Main checks them: a wrong column would corrupt another process's rows.
                bound.append(places_of(rows))
            if policy is not None and samples is not None:
                policy.bind(samples, columns)
                self._of_policies.append(rebind_policy(policy, samples, columns))
        return bound

    def use_batch(self, number: int) -> None:
        """Switch the environments and policies of all groups to a batch of the buffer."""
        # All groups together: main changes the batch only while no group has a row in progress.
        self.batch = number
        self._forget_steps()
        for rows in self._rows:
            rows.use_batch(number)
        for use_batch in self._of_policies:
            use_batch(number)

    def _forget_steps(self) -> None:
        # They hold views of the batch.
        self._steps = [None] * len(self.groups)

    def collect(
        self, truncated_only: bool, at_once: bool = False
    ) -> list[tuple[Packed, list[tuple[Any, ...]]]]:
        """Return the packed episodes and final observations of each group since the previous call."""
        found: list[tuple[Packed, list[tuple[Any, ...]]]] = []
        # Both in one answer: main asks once per batch, and keeps the other part until it is collected.
        for envs in self.groups:
            final = [] if envs is None else envs.take_final(truncated_only=truncated_only)
            packed: Packed = [] if envs is None else envs.take_packed(at_once=at_once)
            found.append((packed, [*map(tuple, final)]))
        return found

    @property
    def collects_values(self) -> bool:
        """Whether plain pickle suffices for the result of `collect`."""
        # A user's TrajInfo class may be defined in the script, which needs cloudpickle; packed episodes are
        # numbers.
        return all(envs is None or envs.packs_numbers for envs in self.groups)

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[column]` random steps of each environment, of all groups."""
        # Every process receives the counts of all columns, and takes its part.
        for group, (envs, share) in enumerate(zip(self.groups, self._shares, strict=True)):
            if envs is not None:
                if group in self._lost:
                    self._recover(group)
                    EnvironmentShare.run(self, RESET_ALL, group, t)
                envs.decorrelate(counts[share], t)

    def states(self) -> list[list[State]]:
        """Return the state of each environment for a checkpoint, by group."""
        return [[] if envs is None else envs.states() for envs in self.groups]

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Restore this process's part of the states of all columns."""
        for envs, share in zip(self.groups, self._shares, strict=True):
            if envs is not None:
                envs.load_states(states[share], salt)
                # An environment may have been saved while it waited for a reset.
                self._needs_reset[share] = envs.needs_reset

    def get(self, name: str) -> list[list[Any]]:
        """Return an attribute of each environment, by group. Callables are replaced by METHOD."""
        # A method would be pickled together with its environment; main calls it by name instead.
        return [
            []
            if envs is None
            else [METHOD if callable(value) else value for value in envs.get(name)]
            for envs in self.groups
        ]

    def set(self, name: str, value: Any) -> list[list[None]]:
        """Set an attribute of each environment; return None for each, by group."""
        for envs in self.groups:
            if envs is not None:
                envs.set(name, value)
        # In the form of all answers, which main sorts by column whatever the call.
        return [[None] * (share.stop - share.start) for share in self._shares]

    def set_each(self, name: str, values: Sequence[Any]) -> list[list[None]]:
        """Set an attribute to a separate value in each environment of the cage."""
        for envs, share in zip(self.groups, self._shares, strict=True):
            if envs is not None:
                envs.set_each(name, values[share])
        return [[None] * (share.stop - share.start) for share in self._shares]

    def apply(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...] | None]
    ) -> list[list[Any]]:
        """Call a function with each selected environment of the cage; return the results by group."""
        return [
            [] if envs is None else envs.apply(function, calls[share])
            for envs, share in zip(self.groups, self._shares, strict=True)
        ]

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
        """Call a method of each environment; return the results by group."""
        return [[] if envs is None else envs.method(name, args, kwargs) for envs in self.groups]

    def close(self) -> None:
        """Close all environments even if some fail, then raise the first error."""
        self._forget_steps()
        # `run` of a worker calls this again after the call "close"; closed environments ignore it.
        errors = []
        # Continues after an error: an environment left open may hold a window or a program.
        for envs in self.groups:
            try:
                if envs is not None:
                    envs.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise first_of(errors)
