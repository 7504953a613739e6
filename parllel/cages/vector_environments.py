"""The environments of one native vector environment: rows that are stepped and copied as wholes.

    step_row     one call steps all            -> one copy per field and row
                 an end: the last observation is kept; the next episode begins in the same row, or the
                 environment waits: it is stepped all the same, with an action of its space, and what it
                 returns is ignored until `reset_rows` resets it

No step that an environment ignores becomes part of a batch: see `NativeEnv` for the autoreset modes.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.cages.answers import FinalObservation
from parllel.cages.argument_checks import check_counts, check_row
from parllel.cages.follow import follow
from parllel.cages.make_envs import words_of
from parllel.cages.native_env import DISABLED, SAME_STEP, NativeEnv
from parllel.cages.native_trees import (
    copied,
    final_observation,
    info_of,
    pick,
    put,
    stacked,
)
from parllel.cages.row_environments import RowEnvironments
from parllel.cages.rows import Rows
from parllel.cages.trajectories import TrajInfoFactory
from parllel.cages.vector_attributes import call_method, get_attribute, set_attribute
from parllel.cages.vector_env_factory import VectorEnvFactory
from parllel.errors import WrongStateError, add_note
from parllel.types import State, Tree


class _Result(NamedTuple):
    """What `step` of a vector environment returns, [n] or [n, ...] each."""

    observation: Tree
    reward: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    info: dict[str, Any]


class VectorEnvironments(RowEnvironments):
    """One native vector environment in this process, row by row.

    Args:
        factory: makes it.
        seeds: for each environment a seed sequence or int for its generator and its action space.
        traj_info, reset_automatically, index, check: as for `Environments`.
    """

    _stacked = True

    def __init__(
        self,
        factory: VectorEnvFactory,
        seeds: Sequence[Any],
        traj_info: TrajInfoFactory,
        *,
        reset_automatically: bool,
        index: int = 0,
        check: str = "first_episode",
    ) -> None:
        # Before the environment is made, which may take long or start programs.
        if check not in ("first_episode", "always"):
            raise ValueError(f"check: expected 'first_episode' or 'always', got {check!r}")
        n = len(seeds)
        numbers = f"environments {index} to {index + n - 1}"
        words = [words_of(seed) for seed in seeds]
        self._first_seeds = [first for first, _ in words]
        try:
            self._native = NativeEnv(factory, self._first_seeds, numbers)
        except BaseException as error:
            add_note(error, f"in {numbers}, while they were made")
            raise
        try:
            super().__init__(
                index=index,
                name=f"{numbers} ({self._native.spaces.name})",
                spaces=self._native.spaces,
                needs_reset=np.ones(n, bool),
                trajs=follow(traj_info, n),
            )
            self.action_spaces = [self._action_space(second) for _, second in words]
        except BaseException:
            with suppress(Exception):  # what was raised first is what matters
                self._native.close()
            raise
        self._automatic = reset_automatically
        self._seeds = list(self._first_seeds)  # of the next reset of all
        self._n_waiting = n
        # Whether nothing was stepped since a reset by seeds: another one by these then begins alike.
        self._just_seeded = False
        self._last: Tree = None  # what the last step returned as observation
        # What those that wait are stepped with: the buffer may hold anything for them.
        self._idle_action = self._action_space(0).sample()

    def _action_space(self, seed: int | None) -> Any:
        space = copy.deepcopy(self.spaces.action)
        if seed is not None:
            space.seed(seed)
        return space

    def name_of(self, i: int) -> str:
        """Return what messages call the i-th environment."""
        return f"environment {self.index + i} ({self.spaces.name})"

    # ------------------------------------------------------------------ resets

    def reset_rows(self, t: int, *, everyone: bool) -> None:
        """Write reset observations into row `t`: of all, or of those that need a reset."""
        rows = self._bound()
        # One row more than the batch has: the one that follows it is where the next batch begins.
        check_row(t, rows.T + 1, self.name)
        which = np.flatnonzero(self.needs_reset | everyone)
        if len(which) == len(self._indices):
            try:
                observation = self._native.reset_all(self._seeds)
            except Exception as error:
                add_note(error, f"in {self.name}, during reset")
                raise
            self._just_seeded = None not in self._seeds
            self._seeds = [None] * len(which)  # not before: a reset that failed may be tried again
            rows.write_observations(t, observation)
        elif len(which):
            rows.write_some(t, which, self._reset_some(which, self._last))
        for i in which.tolist():
            self._trajs.begin(i)
        self.needs_reset[which] = False
        self._n_waiting = 0
        self._started = True

    def _reset_some(
        self, which: NDArray[np.intp], observation: Tree, seeds: Sequence[int | None] | None = None
    ) -> Tree:
        try:
            return self._native.reset_some(which, observation, seeds)
        except Exception as error:
            numbers = ", ".join(str(self.index + i) for i in which.tolist())
            add_note(error, f"in environment {numbers} ({self.spaces.name}), during reset")
            raise

    # ------------------------------------------------------------------ rows

    def step_row(self, t: int) -> None:
        """Step all with the actions of row `t`; ended ones that wait for a reset get zeros."""
        rows = self._rows
        # One condition for all that can be wrong, as this runs in every row; what it was is seen afterwards.
        if rows is None or rows.read_actions is None or not 0 <= t < rows.T or not self._started:
            self._refuse_row(t)
        else:
            self._run_row(t, rows, rows.read_actions(t), by_agent=True)

    def random_row(self, t: int) -> None:
        """Draw the actions of row `t` from the action spaces, write them, and step."""
        rows = self._bound()
        self._check_row(t, rows)
        # Drawn for those that wait as well, as by `Environments`: a seed then decides the same actions.
        actions = [space.sample() for space in self.action_spaces]
        for i, action in enumerate(actions):
            rows.write_action(t, i, action)
        self._run_row(t, rows, stacked(self.spaces.action, actions))

    def _run_row(self, t: int, rows: Rows, actions: Tree, *, by_agent: bool = False) -> None:
        # Before the step, as `see_agent_info` belongs to the step that follows; those that wait make none.
        if by_agent and rows.agent_info is not None and self._trajs.sees_agent_info:
            for i in np.flatnonzero(~self.needs_reset).tolist():
                self._trajs.see_agent_info(i, rows.agent_info_of(t, i))
        if self._n_waiting:
            put(actions, self.needs_reset, self._idle_action)
        self._just_seeded = False
        try:
            result = _Result(*self._native.step(actions))
            ended = np.logical_or(result.terminated, result.truncated)
        except Exception as error:
            add_note(error, f"in {self.name}, during step")
            # Which of them was stepped is not known.
            rows.write_part(t, [None] * len(self._indices), [], None)
            raise
        if self._n_waiting:
            result = self._without_waiting(result)
        self._last = result.observation
        done = np.logical_or(result.terminated, result.truncated)
        rows.write_observations(t + 1, result.observation)
        rows.write_stack(t, result.reward, result.terminated, result.truncated, done)
        if self._trajs.per_step:
            self._record(actions, result, ~self.needs_reset)
        if rows.env_info is not None:
            self._write_infos(t, rows, result, done)
        which = np.flatnonzero(done)
        self._trajs.add_stack(result.reward, which)
        if self._n_waiting:
            for i in np.flatnonzero(self.needs_reset).tolist():
                rows.clear_observation(t + 1, i)
        if ended.any():
            self._end_episodes(t, rows, result, ended, which)

    def _without_waiting(self, result: _Result) -> _Result:
        awake = ~self.needs_reset
        return result._replace(
            reward=np.where(awake, result.reward, 0),
            terminated=result.terminated & awake,
            truncated=result.truncated & awake,
        )

    def _record(self, actions: Tree, result: _Result, going: NDArray[np.bool_]) -> None:
        """Pass each step of those that are going to the TrajInfos."""
        for i in np.flatnonzero(going).tolist():
            ended = bool(result.terminated[i] or result.truncated[i])
            self._trajs.step(
                i,
                self._final_of(result, i) if ended else pick(result.observation, i),
                _plain(pick(actions, i)),
                float(result.reward[i]),
                bool(result.terminated[i]),
                bool(result.truncated[i]),
                self._info_of(result.info, i, ended=ended),
            )

    def _info_of(self, infos: dict[str, Any], i: int, *, ended: bool) -> dict[str, Any]:
        # Where the next episode has begun already, the rest of the info is that of its reset.
        if ended and isinstance(infos.get("final_info"), dict):
            infos = infos["final_info"]
        return info_of(infos, i, len(self._indices))

    def _write_infos(self, t: int, rows: Rows, result: _Result, done: NDArray[np.bool_]) -> None:
        assert rows.env_info is not None
        for i in np.flatnonzero(~self.needs_reset).tolist():
            ended = bool(done[i])
            rows.env_info.write(t, i, self._info_of(result.info, i, ended=ended), ended=ended)

    def _final_of(self, result: _Result, i: int) -> Tree:
        """Return a copy of the last observation of an episode that ended in this step."""
        if self._native.mode != SAME_STEP:
            return copied(pick(result.observation, i))
        final = final_observation(result.info, i)
        if final is None:
            raise ValueError(
                f"{self.name_of(i)}: reset in the same step, without its last observation: expected "
                f"info['final_obs'], got {sorted(result.info)}"
            )
        return final

    def _end_episodes(
        self,
        t: int,
        rows: Rows,
        result: _Result,
        ended: NDArray[np.bool_],
        which: NDArray[np.intp],
    ) -> None:
        """Keep last observations, and begin the next episodes, or let their environments wait.

        ended: of all that are done, those that wait as well.  which: those that were not waiting.
        """
        final = [self._final_of(result, i) for i in which.tolist()]
        for i, observation in zip(which.tolist(), final, strict=True):
            truncated = bool(result.truncated[i])
            self._final.append(FinalObservation(t, rows.lo + i, observation, truncated))
        # Before the resets: if one raises, these environments are known to need one.
        self.needs_reset[which] = True
        self._n_waiting += len(which)
        mode = self._native.mode
        if self._automatic:
            if mode != SAME_STEP:
                rows.write_some(t + 1, which, self._reset_some(which, result.observation))
            self.needs_reset[which] = False
            self._n_waiting -= len(which)
            return
        if mode == SAME_STEP:
            for i, observation in zip(which.tolist(), final, strict=True):
                rows.write_observation(t + 1, i, observation)
        elif mode == DISABLED:
            # They are stepped with the others, which this mode allows after a reset alone.
            self._reset_some(np.flatnonzero(ended), result.observation)

    # ------------------------------------------------------------------ decorrelation

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[i]` random steps and write the observations reached into row `t`.

        All are stepped as often as the one with the most steps; the others begin an episode as late as leaves
        them their own number. Episodes that end on the way are not reported; the one in progress is.
        """
        rows = self._bound()
        check_row(t, rows.T + 1, self.name)
        check_counts(counts, len(self._indices), self.name)
        for i in np.flatnonzero(self.needs_reset).tolist():
            if counts[i]:
                raise WrongStateError(f"{self.name_of(i)}: stepped before a reset")
        most = max(counts)
        if not most:
            return
        # A reset by the same seeds leads to where the environments are now, if they have not been stepped.
        seeds = self._first_seeds if self._just_seeded else None
        left = np.where(self.needs_reset, most, most - np.array(counts))
        completed = self._trajs.count()
        try:
            for k in range(most):
                self._random_step(k, left, seeds)
            self._begin_late(np.flatnonzero((left == most) & ~self.needs_reset), seeds)
        finally:
            self._trajs.forget_after(completed)
        stepped = np.flatnonzero(~self.needs_reset)
        rows.write_some(t, stepped, pick(self._last, stepped))

    def _random_step(
        self, k: int, left: NDArray[np.int64], seeds: Sequence[int | None] | None
    ) -> None:
        """Take random step `k` of decorrelation, in which environment i is to begin with step `left[i]`."""
        if k:
            self._begin_late(np.flatnonzero(left == k), seeds)
        going = left <= k
        actions = stacked(
            self.spaces.action,
            [
                space.sample() if goes else self._idle_action
                for space, goes in zip(self.action_spaces, going.tolist(), strict=True)
            ],
        )
        self._just_seeded = False
        try:
            result = _Result(*self._native.step(actions))
        except Exception as error:
            add_note(error, f"in {self.name}, during step")
            raise
        if self._trajs.per_step:
            self._record(actions, result, going)
        ended = np.logical_or(result.terminated, result.truncated)
        which = np.flatnonzero(ended & going)
        self._trajs.add_stack(result.reward, which)
        self._last = copied(result.observation)
        if self._native.mode == DISABLED:
            which = np.flatnonzero(ended)  # those that are not going must be steppable, too
        if len(which) and self._native.mode != SAME_STEP:
            put(self._last, which, self._reset_some(which, result.observation))

    def _begin_late(self, which: NDArray[np.intp], seeds: Sequence[int | None] | None) -> None:
        if len(which):
            put(self._last, which, self._reset_some(which, self._last, seeds))
            for i in which.tolist():
                self._trajs.begin(i)

    # ------------------------------------------------------------------ the environments themselves

    def states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment, between two rows."""
        raise NotImplementedError

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Take back what `states` returned; for `salt` and errors see `load_environment_states`."""
        raise NotImplementedError

    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment, see `get_attribute`."""
        return get_attribute(self._native.env, name, len(self._indices))

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment; AttributeError where it is not found."""
        set_attribute(self._native.env, name, value, len(self._indices))

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results."""
        return call_method(self._native.env, name, len(self._indices), args, kwargs)

    def _close_environments(self) -> None:
        self._native.close()


def _plain(action: Tree) -> Tree:
    """Return numbers as Python's, as single environments get them."""
    if isinstance(action, dict):
        return {name: _plain(part) for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(map(_plain, action))
    return action.item() if isinstance(action, np.generic) else action
