"""What each process of a SynchronizedProcessCage has: environments of every group.

    this process, a worker or main      memory that all processes of the cage share
    run: a row                     <--  action of its columns           written by the agent, or a policy here
                                   -->  observation, reward, flags of its columns
                                   -->  needs_reset of its columns      read by main between rows
    after_row, in a rollout        -->  how many rows are done          read by main, if it waits for long

    main: a call                   -->  calls[op], in every process     results return as answers

No other process writes these columns, so nothing is locked. Its done word, posted after all of this, says
when the others may read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.buffers.samples import Samples
from parllel.cages.spaces import Spaces, check_alike
from parllel.cages.stepping.row_environments import RowEnvironments
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.trajectories import Packed
from parllel.cages.workers.bound_places import Bound, places_of
from parllel.cages.workers.control import RANDOM, RESET_ALL, RESET_ENDED, ROLLOUT, STEP
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
        makes: for each group what makes its environments, None where there are none.
        shares: their columns, relative to the cage's first.
        needs_reset: [n] of the cage, in memory that all its processes share.
        reset_automatically: as the environments were made.
        after_row: called in a rollout, with the group and how many rows of it are done.

    Attributes:
        batch: number of the batch that rows belong to.
    """

    def __init__(
        self,
        makes: Sequence[Callable[[], RowEnvironments] | None],
        shares: Sequence[slice],
        needs_reset: NDArray[np.bool_],
        *,
        reset_automatically: bool,
        after_row: Callable[[int, int], None],
    ) -> None:
        self._shares = shares
        self._needs_reset = needs_reset
        self._automatic = reset_automatically
        self._after_row = after_row
        self._rows: list[Rows] = []
        self._of_policies: list[Callable[[int], None]] = []
        self.batch = 0
        # One for each group, as two groups may be at different rows at the same time.
        self._policies: list[WorkerPolicy | None] = [None] * len(makes)
        self.groups: list[RowEnvironments | None] = []
        try:
            for make in makes:
                # A process may have no columns in a group that has fewer of them than there are processes.
                self.groups.append(None if make is None else make())
            self._check_spaces()
        except BaseException:
            self.close()  # those that were made may have windows, files or processes
            raise
        # By name, as main sends it: what is not listed here cannot be called from there.
        self.calls: dict[str, Callable[..., Any]] = {
            "bind": self.bind,
            "set_policy": self.set_policy,
            "collect": self.collect,
            "decorrelate": self.decorrelate,
            "states": self.states,
            "load_states": self.load_states,
            "get": self.get,
            "set": self.set,
            "method": self.method,
            "close": self.close,
            "nothing": lambda: None,  # in place of a request that could not be sent
        }

    @property
    def made(self) -> tuple[int, Spaces]:
        """The number of the first environment, and the spaces of all."""
        first = next(envs for envs in self.groups if envs is not None)
        return first.index, first.spaces

    def _check_spaces(self) -> None:
        # `Environments` compares those of one group; all groups of a cage share one batch and one agent.
        groups = [envs for envs in self.groups if envs is not None]
        for envs in groups:
            check_alike(envs.spaces, groups[0].spaces, envs.index, groups[0].index)

    def run(self, operation: int, group: int, row: int) -> None:
        """Do a row of a group."""
        # Even then the caller posts its done word: main waits for one from every worker.
        envs = self.groups[group]
        if envs is None:
            return
        if operation == STEP:
            envs.step_row(row)
            # Nearly every row ends here: no environment waits for a reset after it, nor did before.
            if self._automatic:
                return
        elif operation == ROLLOUT:
            self._roll_out(group, envs, row)
        elif operation == RANDOM:
            envs.random_row(row)
        else:
            assert operation in (RESET_ALL, RESET_ENDED)
            envs.reset_rows(row, all_envs=operation == RESET_ALL)
        # Before the caller posts the done word, after which main reads it.
        if not self._automatic or operation in (RESET_ALL, RESET_ENDED):
            self._needs_reset[self._shares[group]] = envs.needs_reset

    def _roll_out(self, group: int, envs: RowEnvironments, T: int) -> None:
        """Act and step for `T` rows, without waiting for any other process."""
        policy = self._policies[group]
        assert policy is not None
        # Which of the two failed: an exception of an environment names that, one of a policy gets a note.
        acting, t = True, -1
        try:
            policy.start_batch()
            for t in range(T):
                acting = True
                policy.step(t)
                acting = False
                envs.step_row(t)
                # So that main can tell a rollout that takes long from one that hangs.
                self._after_row(group, t + 1)
        except Exception as error:
            if acting:
                doing = "start_batch" if t < 0 else f"row {t}"
                add_note(error, f"in the policy, during {doing}")
            raise

    def prepare(self, group: int, row: int) -> None:
        """Do after a row, while no process waits, what would be waited for later."""
        envs = self.groups[group]
        if envs is not None:
            envs.prepare(row)

    def set_policy(self, make: MakePolicy) -> None:
        """Make a policy for each group; environments and policies are to be bound next."""
        # By a function that was sent: the object may hold what cannot be pickled, such as a model.
        self._policies = [None if envs is None else make_policy(make) for envs in self.groups]

    def bind(
        self, samples: Samples | None, action: Tree, fields: dict[str, Tree], lo: int
    ) -> list[Bound]:
        """Bind all groups; return where they are going to read and write, to compare.

        samples: the whole buffer, for policies; None where there are none.
        """
        bound = []
        # First: should binding fail half-way, a change of batch reaches nothing of the buffer before.
        self._rows, self._of_policies = [], []
        for envs, policy, share in zip(self.groups, self._policies, self._shares, strict=True):
            columns = slice(lo + share.start, lo + share.stop)
            if envs is not None:
                rows = envs.bind(action, NamedArrayTuple(**fields), columns)
                self._rows.append(rows)
                self.batch = rows.batch
                # Main compares them: a wrong column would spoil another process's rows.
                bound.append(places_of(rows))
            if policy is not None and samples is not None:
                policy.bind(samples, columns)
                self._of_policies.append(rebind_policy(policy, samples, columns))
        return bound

    def use_batch(self, number: int) -> None:
        """Change to a batch of the buffer, with the environments and policies of all groups."""
        # All at once: main changes the batch only while none of the groups has a row in progress.
        self.batch = number
        for rows in self._rows:
            rows.use_batch(number)
        for use_batch in self._of_policies:
            use_batch(number)

    def collect(
        self, truncated_only: bool, at_once: bool = False
    ) -> list[tuple[Packed, list[tuple[Any, ...]]]]:
        """Return for each group the packed episodes and final observations since the last call."""
        found: list[tuple[Packed, list[tuple[Any, ...]]]] = []
        # Both in one answer: main asks once per batch, and keeps the other one until it is wanted.
        for envs in self.groups:
            final = [] if envs is None else envs.take_final(truncated_only=truncated_only)
            packed: Packed = [] if envs is None else envs.take_packed(at_once=at_once)
            found.append((packed, [*map(tuple, final)]))
        return found

    @property
    def collects_values(self) -> bool:
        """Whether what `collect` returns holds nothing that only cloudpickle can pickle."""
        # A user's TrajInfo may be of a class that the script defines; packed episodes are plain numbers.
        return all(envs is None or envs.packs_numbers for envs in self.groups)

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[column]` random steps of each environment, of all groups."""
        # All processes get the same request, with what concerns every column, and take their part of it.
        for envs, share in zip(self.groups, self._shares, strict=True):
            if envs is not None:
                envs.decorrelate(counts[share], t)

    def states(self) -> list[list[State]]:
        """Return what a checkpoint keeps of each environment, by group."""
        return [[] if envs is None else envs.states() for envs in self.groups]

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Take back the states of all columns of the cage, of which those of this process are used."""
        for envs, share in zip(self.groups, self._shares, strict=True):
            if envs is not None:
                envs.load_states(states[share], salt)
                # An episode of the checkpoint may be over.
                self._needs_reset[share] = envs.needs_reset

    def get(self, name: str) -> list[list[Any]]:
        """Return an attribute of each environment by group; METHOD stands for what can be called."""
        # A method would be pickled with its environment: main calls it by name instead.
        return [
            []
            if envs is None
            else [METHOD if callable(value) else value for value in envs.get(name)]
            for envs in self.groups
        ]

    def set(self, name: str, value: Any) -> list[list[None]]:
        """Set an attribute of each environment; return nothing for each."""
        for envs in self.groups:
            if envs is not None:
                envs.set(name, value)
        # Of the shape of other answers, which main sorts by column without knowing the call.
        return [[None] * (share.stop - share.start) for share in self._shares]

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[list[Any]]:
        """Call a method of each environment; return the results by group."""
        return [[] if envs is None else envs.method(name, args, kwargs) for envs in self.groups]

    def close(self) -> None:
        """Close all environments, whatever the others do; raises the first error at the end."""
        errors = []
        # Also after an error: an environment that stays open may keep a window or a program.
        for envs in self.groups:
            try:
                if envs is not None:
                    envs.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise first_of(errors)
