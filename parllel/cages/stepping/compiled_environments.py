"""Rows and whole batches of compiled environments, stepped by one compiled call.

    every environment     its record is an item of `states`, an array of them all
    step_row              loop(1 row)          -> observation, reward, flags, statistics, written in place
    bound_rollout         loop(many rows)      -> the same, with the batch's actions or a compiled policy's
    all else              EnvStepper           -> one environment after the other, on the same records

Attributes, states, resets with seeds and random steps are those of single environments. Rows are stepped one
by one in Python too where the batch has infos, observations that are nested or single numbers, actions of
another dtype than the space, or a TrajInfo that wants each step. Observations of another dtype, and frames
that are stored once, are copied row by row; a rollout steps such rows singly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from parllel.arrays.array import Array
from parllel.arrays.batch_views import BatchViews
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.cages.stepping import compiled_rows as at
from parllel.cages.stepping.batched_trajectories import BatchedTrajectories
from parllel.cages.stepping.checks import check_step
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.environments import Environments
from parllel.cages.stepping.info_environments import InfoEnvironments
from parllel.cages.stepping.observation_check import LARGEST, ObservationCheck
from parllel.cages.stepping.rows import Rows
from parllel.cages.stepping.step_result import FinalObservation
from parllel.cages.stepping.trajectories import End
from parllel.envs.compiled.compiled_env import CompiledEnv
from parllel.errors import add_note
from parllel.types import CompiledActs, Tree

_MOST_ROWS = 128  # of one call, during which a process answers to nothing
_FINAL_BYTES = 2**22  # of the last observations that one call may write


@dataclass
class _Fields:
    """Memory of the bound fields, and arguments of the loops that stay the same."""

    views: tuple[BatchViews, ...]  # observation, unless `copied`, action, reward and terminated
    action: NDArray[Any]
    bounds: tuple[Any, ...]
    observation: NDArray[Any]
    results: tuple[NDArray[Any], ...]  # without the kept rewards
    ends: tuple[NDArray[Any], ...]
    most_rows: int
    copied: bool  # whether `observation` is two rows of these environments, copied to the batch


class CompiledEnvironments(Environments):
    """Steps compiled environments of one class.

    Args:
        envs: the environments of the stepper without wrappers.
    """

    _trajs: Any
    # Whether episodes are recorded; otherwise the caller follows them.
    _keeps_episodes = True

    def __init__(self, stepper: EnvStepper, envs: Sequence[CompiledEnv]) -> None:
        super().__init__(stepper)
        functions = envs[0].functions
        self._functions = functions
        self._states = functions.new_states(len(envs))
        self._counts = np.zeros(len(envs), np.int64)
        for i, env in enumerate(envs):
            env.attach(self._states, self._counts, i)
        # Generators stay the same objects, whatever seeds and states they are given.
        self._rngs = at.list_of([env.np_random for env in envs])
        self._discrete = isinstance(self.spaces.action, spaces.Discrete)
        self._loops: dict[str, Callable[..., int]] = {}
        self._fields: _Fields | None = None
        self._words = np.zeros(0, np.int64)
        # Last observations, by call: places [e, 3] of row, environment and truncated; copies [e, ...].
        self._ended: list[tuple[NDArray[np.int64], NDArray[Any]]] = []
        self._unchecked = True

    def bind(self, action: Tree, env: NamedArrayTuple, columns: slice) -> Rows:
        """Bind to `columns` of a batch, one per environment; return the views of its rows."""
        rows = super().bind(action, env, columns)
        self._fields = None
        if self._fits(action, env):
            self._fields = self._bind_fields(action, env, columns)
        return rows

    def _fits(self, action: Tree, env: NamedArrayTuple) -> bool:
        """Return whether the loops can write to these fields."""
        observation, space = env.observation, self.spaces.observation
        arrays = [action, env.reward, env.terminated, env.truncated, env.done]
        if env.env_info is not None or not all(isinstance(array, Array) for array in arrays):
            return False
        whole = self._discrete and action.dtype.kind in "iu"
        return (
            isinstance(self._trajs, BatchedTrajectories)
            and isinstance(observation, Array)
            and bool(space.shape)
            and (whole or action.dtype == self.spaces.action.dtype)
            and (self._discrete or len(action.shape) > 2)
            and all(BatchViews(array).memory.flags.c_contiguous for array in arrays)
        )

    def _bind_fields(self, action: Array, env: NamedArrayTuple, columns: slice) -> _Fields:
        n = len(self._indices)
        space: Any = self.spaces.action
        results = [
            BatchViews(array) for array in (env.reward, env.terminated, env.truncated, env.done)
        ]
        views = (BatchViews(action), *results[:2])
        kind: Any = self.spaces.observation
        seen = None if isinstance(env.observation, LazyFramesArray) else BatchViews(env.observation)
        if seen is not None and seen.memory.dtype == kind.dtype and seen.memory.flags.c_contiguous:
            views, observation, lo = (seen, *views), seen.memory, columns.start
        else:
            seen, observation, lo = None, np.zeros((2, n, *kind.shape), kind.dtype), 0
        cell = observation.shape[2:]
        of_one = max(1, n * observation[0, 0].nbytes)
        most = max(1, min(_MOST_ROWS, self._trajs.most_rows, _FINAL_BYTES // of_one))
        most = 1 if seen is None else most
        ends = (
            np.zeros((n * most, 3), np.int64),
            np.zeros((n * most, *cell), observation.dtype),
            np.zeros((n * most, 3), np.int64),
        )
        words = np.zeros(at.N_WORDS, np.int64)
        words[at.LO], words[at.SEEN_LO] = columns.start, lo
        words[at.LIMIT] = self._functions.max_episode_steps or 0
        words[at.AUTOMATIC] = self.stepper.reset_automatically
        bounds: tuple[Any, ...] = ()
        if isinstance(space, spaces.Discrete):
            words[at.FIRST_ACTION], words[at.N_ACTIONS] = space.start, space.n
        elif isinstance(space, spaces.Box):
            low, high = space.low, space.high
            if self._raw:
                low, high = (np.full_like(low, one) for one in _limits_of(low.dtype))
            bounds = (low, high, np.zeros_like(low))
        else:
            start = np.asarray(getattr(space, "start", 0), space.dtype)
            last = start + np.asarray(getattr(space, "nvec", 2), space.dtype) - 1
            low, high = (
                np.broadcast_to(one, space.shape).astype(space.dtype) for one in (start, last)
            )
            bounds = (low, high, np.zeros_like(low))
            words[at.N_ACTIONS] = 1
        self._words = words
        return _Fields(
            views,
            BatchViews(action).memory,
            bounds,
            observation,
            tuple(view.memory for view in results),
            ends,
            most,
            seen is None,
        )

    # ------------------------------------------------------------------ rows and rollouts

    def step_row(self, t: int) -> None:
        """Step all environments with the actions of row `t`; those that wait for a reset get zeros."""
        rows = self._rows
        if self._fields is None or rows is None or not 0 <= t < rows.T or not self._started:
            super().step_row(t)
        else:
            self._run_rows(self._loop(at.GIVEN), t, 1, ())

    def bound_step(self, *, truncated_only: bool = False) -> Callable[[int], None]:
        """Return `step_row`."""
        return self.step_row

    def bound_rollout(
        self, find_acts: Callable[[], CompiledActs | None]
    ) -> Callable[..., None] | None:
        """Return a function that fills rows 0 to T - 1 of the current batch, see `RowEnvironments`."""
        fields = self._fields
        acts = None if fields is None else find_acts()
        if fields is None or acts is None:
            return None
        loop, most, policy = self._loop(acts.source), fields.most_rows, acts.arguments

        def roll_out(T: int, after_rows: Callable[[int], object] | None = None) -> None:
            if not self._started:
                self.step_row(0)  # raises
            for t in range(0, T, most):
                self._run_rows(loop, t, min(most, T - t), policy)
                if after_rows is not None:
                    after_rows(min(t + most, T))

        return roll_out

    def _run_drawn(self, t: int, rows: Rows, actions: list[Any]) -> None:
        # The actions are in the batch already.
        if self._fields is None:
            super()._run_drawn(t, rows, actions)
        else:
            self._run_rows(self._loop(at.GIVEN), t, 1, ())

    def _loop(self, source: str) -> Callable[..., int]:
        if source not in self._loops:
            cache: dict[Any, Any] = self._functions.loops
            if self._discrete not in cache:
                cache[self._discrete] = at.make_run(
                    *self._functions.compiled, discrete=self._discrete
                )
            key = source, self._discrete
            if key not in cache:
                cache[key] = at.make_loop(cache[self._discrete], source=source)
            self._loops[source] = cache[key]
        return self._loops[source]

    def _run_rows(
        self, loop: Callable[..., int], t: int, n_rows: int, policy: tuple[Any, ...]
    ) -> None:
        fields, rows, words, trajs = self._fields, self._rows, self._words, self._trajs
        assert fields is not None
        assert rows is not None
        kept, first = trajs.reserve(n_rows)
        starts = [view.start(rows.batch) + t for view in fields.views]
        # The words of OBSERVATION, ACTION, REWARD and FLAGS.
        words[4 - len(starts) : 4] = starts
        words[at.KEPT], words[at.ROW], words[at.N_EVENTS] = first, t, 0
        wrong = 0
        try:
            wrong = loop(
                n_rows,
                policy,
                fields.action,
                fields.bounds,
                (self._states, self._counts, self.needs_reset),
                self._rngs,
                fields.observation,
                (*fields.results, kept),
                fields.ends,
                words,
            )
        except Exception as error:
            self._abandon_rows(rows, fields, kept, first, n_rows)
            add_note(error, f"in {self._failed_name}, during step")
            raise
        if wrong:
            self._abandon_rows(rows, fields, kept, first, n_rows)
            raise self._wrong_action(fields)
        n_ended = int(words[at.N_EVENTS])
        events, finals, places = (part[:n_ended] for part in fields.ends)
        if fields.copied:
            self._copy_row(t + 1, rows, fields.observation[1])
        if self._keeps_episodes:
            trajs.store(n_rows, events)
        if n_ended:
            self._ended.append((places.copy(), finals.copy()))
            if not self.stepper.reset_automatically:
                self.stepper.n_waiting = int(np.count_nonzero(self.needs_reset))
        if self._unchecked:
            self._check_rows(fields, kept[first : first + n_rows], n_ended)

    def _copy_row(self, t: int, rows: Rows, observations: NDArray[Any]) -> None:
        row = rows.single[t]  # type: ignore[index]
        if isinstance(row, np.ndarray):
            row[...] = observations
        else:
            for i in self._indices:
                row[i] = observations[i]

    @property
    def _failed_name(self) -> str:
        return self.stepper.name_of(int(self._words[at.ENVIRONMENT]))

    def _wrong_action(self, fields: _Fields) -> ValueError:
        i, k = int(self._words[at.ENVIRONMENT]), int(self._words[at.FAILED_ROW])
        action = fields.action[self._words[at.ACTION] + k, self._words[at.LO] + i]
        return ValueError(
            f"{self._failed_name}: action: expected an element of {self.spaces.action}, got {action} in "
            f"row {self._words[at.ROW] + k}"
        )

    def _abandon_rows(
        self, rows: Rows, fields: _Fields, kept: NDArray[np.float64], first: int, n_rows: int
    ) -> None:
        """Keep the valid part of a single row after an error; a rollout is lost as a whole."""
        # Those whose episodes ended in compiled code wait, but were not counted.
        self.stepper.n_waiting = int(np.count_nonzero(self.needs_reset))
        if n_rows > 1:
            return
        failed, t = int(self._words[at.ENVIRONMENT]), int(self._words[at.ROW])
        n_ended = int(self._words[at.N_EVENTS])
        places, finals = fields.ends[2][:n_ended], fields.ends[1][:n_ended]
        truncated = dict(zip(places[:, 1].tolist(), places[:, 2].tolist(), strict=True))
        flags = fields.results[1][self._words[at.FLAGS]]
        ended: list[End] = [
            (i, bool(flags[self._words[at.LO] + i]), bool(cut)) for i, cut in truncated.items()
        ]
        made = failed + (failed in truncated)
        rewards: list[Any] = [*kept[first, :made].tolist(), *[None] * (len(self._indices) - made)]
        if n_ended:
            self._ended.append((places.copy(), finals.copy()))
        # In a reset after the end of an episode.
        if failed in truncated:
            self.stepper.wait_for_reset(failed)
        self._abandon_row(t, rows, rewards, ended, failed)

    # ------------------------------------------------------------------ checks and last observations

    def _check_rows(self, fields: _Fields, rewards: NDArray[np.float64], n_ended: int) -> None:
        """Check rewards and observations of environments in their first episodes."""
        stepper, n = self.stepper, len(self._indices)
        first, lo = (int(self._words[word]) for word in (at.OBSERVATION, at.SEEN_LO))
        checking = np.array(stepper.checking)
        for i in np.flatnonzero((~(np.abs(rewards) <= LARGEST)).any(0) & checking).tolist():
            for reward in rewards[:, i].tolist():
                check_step((None, reward, False, False, {}), stepper.name_of(i))
        seen = fields.observation[first + 1 : first + 1 + len(rewards), lo : lo + n]
        last, places = fields.ends[1][:n_ended], fields.ends[2][:n_ended, 1]
        for array, columns in ((seen, None), (last, places)):
            shape = array.shape[: array.ndim - len(self.spaces.observation.shape or ())]
            try:
                ObservationCheck(self.spaces.observation, shape)(array, "")
            except (TypeError, ValueError):
                self._check_each(array, columns)
        self.stepper.end_checks(places.tolist())
        self._unchecked = any(stepper.checking)

    def _check_each(self, array: NDArray[Any], columns: NDArray[np.int64] | None) -> None:
        """Check observations one by one, to name the environment."""
        check = ObservationCheck(self.spaces.observation)
        for i in self._indices:
            if self.stepper.checking[i]:
                for one in array[:, i] if columns is None else array[columns == i]:
                    check(one, f"{self.stepper.name_of(i)}: observation of step")

    def take_final(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the final observations of the episodes that have ended since the previous call."""
        final = super().take_final(truncated_only=truncated_only)
        calls, self._ended = self._ended, []
        assert self._rows is not None or not calls
        for places, observations in calls:
            # By row, then by environment, as others report them.
            order = np.lexsort((places[:, 1], places[:, 0]))
            if truncated_only:
                order = order[places[order, 2] == 1]
            for j in order.tolist():
                t, i, cut = places[j].tolist()
                final.append(FinalObservation(t, self._rows.lo + i, observations[j], bool(cut)))  # type: ignore[union-attr]
        return final

    @property
    def has_final(self) -> bool:
        """Whether `take_final` would return anything."""
        return bool(self._ended) or super().has_final

    def close(self) -> None:
        """Close all environments even if some fail, then raise the first error."""
        self._fields = None
        super().close()


class CompiledInfoEnvironments(CompiledEnvironments, InfoEnvironments):
    """The same for callers who want the infos and last observations of each row; all infos are empty."""

    _keeps_episodes = False

    def reset_rows(
        self, t: int, *, all_envs: bool = True, which: NDArray[np.bool_] | None = None
    ) -> None:
        """Reset all environments, those of `which`, or those that need it, into row `t`."""
        self._ended.clear()
        super().reset_rows(t, all_envs=all_envs, which=which)

    def step_row(self, t: int) -> None:
        """Step all environments with the actions of row `t`; those that wait for a reset get zeros."""
        if self._fields is None:
            super().step_row(t)
            return
        self._forget()
        super().step_row(t)
        if self.stepper.reset_automatically:
            for places, observations in self._ended:
                for i, observation in zip(places[:, 1].tolist(), observations, strict=True):
                    self._finals[i] = observation, {}
        self._ended.clear()

    def step_or_reset_row(self, t: int) -> None:
        """Step the environments that do not wait with the actions of row `t`, and reset the others."""
        if self._fields is None or self._rows is None:
            super().step_or_reset_row(t)
            return
        waiting = self.needs_reset.copy()
        self.step_row(t)
        # Without forgetting what the others reported in this row.
        for i in np.flatnonzero(waiting).tolist():
            self._rows.write_observation(t + 1, i, self._reset_one(i))


def _limits_of(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the smallest and the largest number of a dtype."""
    if dtype.kind == "f":
        return -np.inf, np.inf
    bounds = np.iinfo(dtype)
    return int(bounds.min), int(bounds.max)
