"""Cages of a sampler side by side: columns of the batch, and steps of all cages together.

sampler     start_row(t) for every group of every cage, then finish_row() for every group
processes   group 0 |--- step ---|
group 1 |--- step -------|     all at the same time
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.batches import follows_batches, rebind
from parllel.buffers.samples import Samples
from parllel.cages.cage_interface import CageInterface
from parllel.cages.owners import Owners
from parllel.cages.spaces import check_side_by_side
from parllel.cages.stepping.step_result import Crash, FinalObservation
from parllel.cages.traj_info import TrajInfo
from parllel.errors import first_of
from parllel.types import CompiledActs, State

_SAMPLED = Owners()


class EnvGroup(NamedTuple):
    """A group of a cage's environments, which is stepped as a unit, and its columns."""

    cage: CageInterface
    number: int
    columns: slice


class EnvGroups:
    """Groups with adjacent columns that are stepped together.

    A step takes two calls per group, regardless of the number of environments.

    Args:
        groups: at least one, in the order of their columns.

    Attributes:
        columns: the columns of all groups together.
        start_row: starts stepping all environments with the actions of row `t`.
        finish_row: waits until all groups are done.
    """

    def __init__(self, groups: Sequence[EnvGroup]) -> None:
        self.groups = list(groups)
        self.columns = slice(groups[0].columns.start, groups[-1].columns.stop)
        # Methods are looked up once, as they are called in every step.
        self._starts = [(one.cage.start_row, one.number) for one in groups]
        self._finishes = [(one.cage.finish_row, one.number) for one in groups]

        self.start_row: Callable[[int], None] = self._start_row
        self.finish_row: Callable[[], None] = self._finish_row
        if len(groups) == 1:  # the usual case: call the cage without a loop in between
            self.start_row = partial(groups[0].cage.start_row, group=groups[0].number)
            self.finish_row = partial(groups[0].cage.finish_row, groups[0].number)

    def bound_step(self, *, truncated_only: bool = False) -> Callable[[int], None]:
        """Return a function that steps all environments with the actions of a row of this batch.

        truncated_only: see `CageInterface.bound_step`.
        """
        if len(self.groups) == 1:
            cage, number, _ = self.groups[0]
            return cage.bound_step(number, truncated_only=truncated_only)

        def step_row(t: int) -> None:
            self._start_row(t)
            self._finish_row()

        return step_row

    def bound_rollout(
        self, find_acts: Callable[[], CompiledActs | None]
    ) -> Callable[[int], None] | None:
        """Return a function that fills rows 0 to T - 1 of this batch at once, or None if a cage cannot."""
        fills = []
        for one in self.groups:
            fill = one.cage.bound_rollout(find_acts, one.number)
            if fill is None:
                return None
            fills.append(fill)

        def roll_out(T: int) -> None:
            for fill in fills:
                fill(T)

        return roll_out

    def _start_row(self, t: int) -> None:
        for start_row, number in self._starts:
            start_row(t, number)

    def start_rollout(self, T: int) -> None:
        """Start filling rows 0 to `T` - 1 with the cages' policies."""
        for one in self.groups:
            one.cage.start_rollout(T, one.number)

    def start_reset(self, t: int, *, all_envs: bool) -> None:
        """Start resetting all environments, or those that have ended, into row `t`."""
        for one in self.groups:
            one.cage.start_reset(t, all_envs=all_envs, group=one.number)

    def _finish_row(self) -> None:
        for finish_row, number in self._finishes:
            finish_row(number)

    def halves(self) -> tuple[EnvGroups, EnvGroups]:
        """Split into two halves at the group boundary nearest to the middle column.

        Raises:
            ValueError: if there is only one group.
        """
        ends = [one.columns.stop for one in self.groups[:-1]]
        if not ends:
            raise ValueError(
                f"{self.groups[0].cage.spaces.name}: expected environments that can be stepped in two "
                "halves, got one cage with one group; give several cages, or "
                "SynchronizedProcessCage(..., n_groups=2)"
            )
        first, last = self.columns.start, self.columns.stop
        # Twice the distances to the middle, which may lie between two columns.
        distances = [abs(2 * end - first - last) for end in ends]
        at = distances.index(min(distances)) + 1
        return EnvGroups(self.groups[:at]), EnvGroups(self.groups[at:])


class CageColumns:
    """The cages of a sampler, in the order of their columns.

    Args:
        cages: at least one; together they have `B` environments.
        B: number of columns of the batch.
        reset_automatically: the setting that all cages must have; None accepts either.

    Attributes:
        columns: the columns of each cage.
        groups: the groups of each cage.
        all_envs: all groups of all cages.

    Raises:
        ValueError: if there are no cages, a cage is given twice, the number of environments is not `B`,
            `reset_automatically` or spaces differ, or groups are not adjacent.
    """

    def __init__(
        self,
        cages: Sequence[CageInterface],
        B: int,
        *,
        reset_automatically: bool | None = None,
    ) -> None:
        if not cages:
            raise ValueError("cages: expected at least one")
        # By identity: a cage has one buffer, and given twice it would step its environments twice per row.
        if len({id(cage) for cage in cages}) != len(cages):
            raise ValueError("cages: expected different cages, got the same cage twice")
        total = sum(cage.n for cage in cages)
        if total != B:
            raise ValueError(f"cages: expected {B} environments for B={B}, got {total}")
        for i, cage in enumerate(cages):
            if reset_automatically not in (None, cage.reset_automatically):
                raise ValueError(
                    f"cage {i} ({cage.spaces.name}): expected reset_automatically="
                    f"{reset_automatically} for this sampler, got {cage.reset_automatically}"
                )
        # The buffer's fields were made for the spaces of the first cage.
        check_side_by_side([cage.spaces for cage in cages])
        _warn_of_equal_seeds(cages)
        self.cages = list(cages)
        self.groups: list[EnvGroups] = []
        first = 0
        for cage in cages:
            self.groups.append(EnvGroups(_groups_of(cage, first)))
            first += cage.n
        self.columns = [of_cage.columns for of_cage in self.groups]
        self.all_envs = EnvGroups([one for of_cage in self.groups for one in of_cage.groups])

    def __repr__(self) -> str:
        return repr(self.cages)

    def check_open(self) -> None:
        """Check that all cages can be used in this process. Raises ClosedError."""
        for cage in self.cages:
            cage.check_open()

    def bind(self, samples: Samples) -> None:
        """Bind each cage to its columns of the buffer.

        Raises:
            ValueError: if another open sampler uses one of the cages.
        """
        for i, cage in enumerate(self.cages):
            # A shared cage would be bound to the other buffer, and stepped and reset by two samplers.
            if _SAMPLED.owner_of(cage) not in (None, self):
                raise ValueError(
                    f"cage {i} ({cage.spaces.name}): expected a cage of this sampler's own, got one that "
                    "another sampler steps; build separate cages for each sampler, for evaluation too, or "
                    "close the other sampler and its cages first"
                )
        for cage in self.cages:
            _SAMPLED.claim(cage, self)
        try:
            for cage, columns in zip(self.cages, self.columns, strict=True):
                cage.set_samples_buffer(samples, columns)
        except BaseException:
            _SAMPLED.release(self)
            raise

    def rebinds(self, samples: Samples) -> list[Callable[[int], None]]:
        """Return functions that switch each cage to a batch of the bound buffer, given its number."""
        return [
            cage.use_batch
            if follows_batches(cage, "set_samples_buffer")
            else rebind(cage.set_samples_buffer, samples, columns)
            for cage, columns in zip(self.cages, self.columns, strict=True)
        ]

    def reset(self, t: int, *, all_envs: bool) -> None:
        """Reset all environments, or those that have ended, and write their observations to row `t`."""
        self.all_envs.start_reset(t, all_envs=all_envs)
        self.all_envs.finish_row()

    @property
    def needs_reset(self) -> NDArray[np.bool_]:
        """Whether each environment has ended and waits for a reset, [B]."""
        return np.concatenate([cage.needs_reset for cage in self.cages])

    def step(self, t: int) -> None:
        """Step all environments with the actions of row `t`."""
        self.all_envs.start_row(t)
        self.all_envs.finish_row()

    def decorrelate(self, counts: Sequence[int], t: int = 0) -> None:
        """Take `counts[b]` random steps in environment b, and write the resulting observations to row `t`."""
        for cage, columns in zip(self.cages, self.columns, strict=True):
            cage.start_decorrelation(counts[columns], t)
        for cage in self.cages:
            cage.finish_row()  # without a group: decorrelation is for whole cages

    def restart_dead(self) -> None:
        """Between two batches: restart processes that have died, where cages do that."""
        for cage in self.cages:
            cage.restart_dead()

    def crashes(self) -> list[Crash]:
        """Return the environments whose process was restarted since the last call."""
        return [crash for cage in self.cages for crash in cage.collect_crashes()]

    def completed_trajs(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, ordered by column."""
        return [traj for cage in self.cages for traj in cage.collect_completed_trajs()]

    def final_observations(self, *, truncated_only: bool = True) -> list[FinalObservation]:
        """Return the final observations of truncated episodes, or of all ended episodes.

        They are ordered by row, then column, so that the rounding of their values does not depend
        on which cages are used.
        """
        found = [
            final
            for cage in self.cages
            for final in cage.collect_final_observations(truncated_only=truncated_only)
        ]
        return sorted(found, key=lambda final: (final.row, final.column)) if found else found

    def states(self) -> list[State]:
        """Return the state of each environment for a checkpoint, [B].

        If cages fail, the first error is raised after all cages have answered.
        """
        states: list[State] = []
        errors: list[Exception] = []
        # All are started before any is awaited, so that workers copy their states in parallel. All are
        # awaited even after an error, so that no cage is left with an unread answer.
        for cage in self.cages:
            try:
                cage.start_environment_states()
            except Exception as error:
                errors.append(error)
        for cage in self.cages:
            try:
                states += cage.environment_states()
            except Exception as error:
                errors.append(error)
        if errors:
            raise first_of(errors)
        return states

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `states`. Raises ValueError for a wrong number of environments."""
        B = self.all_envs.columns.stop
        if len(states) != B:
            raise ValueError(f"environments: expected the states of {B}, got {len(states)}")
        for cage, columns in zip(self.cages, self.columns, strict=True):
            cage.load_environment_states(states[columns], salt)

    def close(self) -> None:
        """Close every cage even if some fail; errors are raised after all are closed."""
        _SAMPLED.release(self)
        # An ExitStack runs all callbacks, and raises afterwards.
        with contextlib.ExitStack() as stack:
            for cage in self.cages:  # so that the workers of all cages exit in parallel
                cage.start_close()
            for cage in self.cages:
                stack.callback(cage.close)


def _groups_of(cage: CageInterface, first: int) -> list[EnvGroup]:
    """Return the groups of a cage whose first column is `first`."""
    groups = cage.groups
    # Each must begin where the previous one ends, as EnvGroups cover several groups with one slice.
    ends = [0, *(group.stop for group in groups)]
    if [group.start for group in groups] != ends[:-1] or ends[-1] != cage.n:
        raise ValueError(
            f"{cage.spaces.name}: groups: expected adjacent slices from 0 to {cage.n}, got {groups}"
        )
    return [
        EnvGroup(cage, number, slice(first + group.start, first + group.stop))
        for number, group in enumerate(groups)
    ]


def seed_keys(cages: Sequence[CageInterface]) -> list[Any]:
    """Return a key for each environment's seed, equal for equal seeds; None for an unknown seed."""
    keys: list[Any] = []
    for cage in cages:
        # None for cages that do not know their seeds, such as users' cages without the property.
        for seed in cage.environment_seeds or [None] * cage.n:
            whole = seed is None or isinstance(seed, np.random.SeedSequence)
            sequence = seed if whole else np.random.SeedSequence(seed)
            key = sequence and (repr(sequence.entropy), sequence.spawn_key, sequence.pool_size)
            keys.append(key)
    return keys


def _warn_of_equal_seeds(cages: Sequence[CageInterface]) -> None:
    first: dict[Any, int] = {}
    for b, key in enumerate(seed_keys(cages)):
        if key is not None and first.setdefault(key, b) != b:
            warnings.warn(
                f"cages: environments {first[key]} and {b} have the same seed, so they begin with the "
                "same episodes; draw all seeds together, as build_cages(..., seeds=seeds) does, or give each "
                "cage a different name",
                stacklevel=4,
            )
            return
