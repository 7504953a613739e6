"""Environments as cages place them: rows of all of them, their episodes and their states.

    who calls                              reads                  writes, in the cage's columns alone
    step_row(t)     cage, worker           action[t]              observation[t + 1], then reward and flags[t]
    random_row(t)                          the action spaces      action[t], and the same
    reset_rows(t)                                                 observation[t]
    prepare(t)      worker, after it has   needs_reset            nothing of the batch: that is main's by then
                    reported row t
    take_*          cage, between rows                            nothing

What places environments (`VectorizedCage` in this process, `Worker` and `EnvironmentShare` in others) calls
the public methods of `Environments`, and nothing below them but the `stepper` for steps of one environment
outside of rows, and `envs` for attributes. So whatever else fills rows, such as environments that step
themselves together and are copied a whole field at a time, can take the place of this class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import NamedArrayTuple
from parllel.cages.answers import FinalObservation
from parllel.cages.argument_checks import check_counts, check_row
from parllel.cages.checks import none_observed
from parllel.cages.env_stepper import EnvStepper
from parllel.cages.make_envs import EnvFactory
from parllel.cages.rows import Rows
from parllel.cages.saved_environments import environment_states, load_environment_states
from parllel.cages.traj_info import TrajInfo
from parllel.cages.trajectories import End, Packed, TrajInfoFactory, is_number
from parllel.errors import WrongStateError, add_note
from parllel.types import State, Tree


class Environments:
    """A list of environments in this process, and the loop that steps them over a row.

    Args:
        factories: make the environments.
        seeds: for each a seed sequence or int for its generator and its action space.
        traj_info: makes the record of one episode.
        reset_automatically: reset at the end of an episode within the same step; otherwise an ended
            environment stays still until the next `reset_rows`.
        index: number of the first one, for messages.
        check: test what environments return: "first_episode" of each, or "always".

    Attributes:
        index: the argument of that name.
        name: what messages call the first one.
        spaces: of each environment.
        needs_reset: [n] bool, always the same array.
        envs: the environments, for what is asked of them by name.
        stepper: steps one of them.

    Raises:
        ValueError: for an unknown `check`.
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        seeds: Sequence[Any],
        traj_info: TrajInfoFactory,
        *,
        reset_automatically: bool,
        index: int = 0,
        check: str = "first_episode",
    ) -> None:
        self.stepper = EnvStepper(
            factories,
            seeds,
            traj_info,
            reset_automatically=reset_automatically,
            index=index,
            check=check,
        )
        self.index = index
        self.name = self.stepper.name(0)
        self.spaces = self.stepper.spaces
        self.needs_reset = self.stepper.needs_reset
        self.envs = self.stepper.envs
        # The stepper's own list, in which it replaces a checked step by a plain one while a row goes over it.
        self._steps = self.stepper.steps
        self._trajs = self.stepper.trajs
        # Kept, as each row goes over it.
        self._indices = range(len(factories))
        self._final: list[FinalObservation] = []
        self._rows: Rows | None = None
        self._started = False

    def bind(self, action: Tree, env: NamedArrayTuple, columns: slice) -> Rows:
        """Make, keep and return views of the rows of `columns`; one column for each environment."""
        B, n = env.reward.shape[1], len(self._indices)
        # A wrong slice would write into columns of other environments, unnoticed.
        if not 0 <= columns.start <= columns.stop <= B or columns.stop - columns.start != n:
            raise ValueError(
                f"{self.name}: columns: expected {n} of the {B} that there are, got {columns}"
            )
        self._rows = Rows(action, env, columns, self.spaces)
        return self._rows

    def reset_rows(self, t: int, *, everyone: bool) -> None:
        """Write reset observations into row `t`: of all, or of those that need a reset."""
        rows = self._bound()
        # One row more than the batch has: the one that follows it is where the next batch begins.
        check_row(t, rows.T + 1, self.name)
        for i in self._indices:
            if everyone or self.needs_reset[i]:
                observation, _ = self.stepper.reset_one(i)
                rows.write_observation(t, i, observation)
        # Not before all of them: a row must not be stepped if one reset failed, though others have succeeded.
        self._started = True

    def prepare(self, t: int) -> None:
        """Do after row `t`, while no process waits, what would be waited for later.

        Ended environments are reset, into private memory; after the last row statistics are added up.
        """
        # Main asks for the episodes after the last row; this is the time in which it is busy with the batch.
        if self._rows is not None and t + 1 == self._rows.T:
            self._trajs.prepare()
        # Before the first `reset_rows` all environments are marked, but none of them has ended.
        if self.stepper.n_waiting and self._started:
            self.stepper.prepare_resets()

    def step_row(self, t: int) -> None:
        """Step all with the actions of row `t`; ended ones stay still and get zeros."""
        rows = self._rows
        # One condition for all that can be wrong, as this runs in every row; what it was is seen afterwards.
        if rows is None or rows.read_actions is None or not 0 <= t < rows.T or not self._started:
            self._refuse_row(t)
        # The quick way leaves out infos, nested observations, waiting environments and TrajInfo's `step`.
        elif rows.cells is None or self.stepper.n_waiting or self._trajs.per_step:
            self._run_row(t, rows, rows.read_actions(t), by_agent=True)
        else:
            self._run_quick(t, rows, rows.read_actions(t), rows.cells[t + 1])

    def random_row(self, t: int) -> None:
        """Draw the actions of row `t` from the action spaces, write them, and step."""
        rows = self._bound()
        self._check_row(t, rows)
        # Drawn for those that wait as well, since the loop finds the actions by position. The agent_info of
        # the row belongs to other actions, so TrajInfos do not see it.
        actions = [space.sample() for space in self.stepper.action_spaces]
        for i, action in enumerate(actions):
            rows.write_action(t, i, action)
        self._run_row(t, rows, actions)

    def _refuse_row(self, t: int) -> None:
        """Raise what is wrong with stepping a row with the buffer's actions."""
        rows = self._bound()
        if rows.read_actions is None:
            raise WrongStateError(f"{self.name}: bound without a buffer of actions")
        self._check_row(t, rows)

    def _check_row(self, t: int, rows: Rows) -> None:
        check_row(t, rows.T, self.name)
        if not self._started:
            raise WrongStateError(f"{self.name}: stepped before a reset")

    def _run_quick(self, t: int, rows: Rows, actions: list[Any], cells: list[NDArray[Any]]) -> None:
        """Do what `_run_row` does, where all step and there is one array of observations."""
        # What makes it quick: per environment one call, one append and one copy, without a look-up by index.
        # So rewards have no entry for steps that were not made, and `_abandon_row` gets them filled up.
        rewards: list[Any] = []
        ended: list[End] = []
        add_reward = rewards.append
        i = -1
        try:
            for i, step, action, cell in zip(
                self._indices, self._steps, actions, cells, strict=False
            ):
                observation, reward, terminated, truncated, _ = step(action)
                # Before anything that can raise: the step was made, and the statistics count it.
                add_reward(reward)
                if observation is None:  # numpy would write NaN
                    raise none_observed(self.stepper.name(i))
                if terminated or truncated:
                    ended.append((i, bool(terminated), bool(truncated)))
                    observation, final = self.stepper.end_episode(i, observation)
                    self._final.append(FinalObservation(t, rows.lo + i, final, bool(truncated)))
                # Copied at once, as the environment may overwrite its array in its next step. After an
                # automatic reset this is the first observation of the next episode: the true last one is in
                # `_final` alone.
                cell[...] = observation
        except Exception as error:
            add_note(error, f"in {self.stepper.name(i)}, during step")
            left_out: list[Any] = [None] * (len(self._indices) - len(rewards))
            self._abandon_row(t, rows, rewards + left_out, ended, i)
            raise
        # Last, and as a whole: one call for a row of rewards, where each alone would cost as much.
        rows.write_results(t, self._add_row(t, rows, rewards, ended), ended)

    def _run_row(self, t: int, rows: Rows, actions: list[Any], *, by_agent: bool = False) -> None:
        # None stands for a step that was not made.
        rewards: list[Any] = [None] * len(self._steps)
        ended: list[End] = []
        # Before the steps, as `see_agent_info` belongs to the step that follows; those that wait make none.
        if by_agent and rows.agent_info is not None and self._trajs.sees_agent_info:
            for i in np.flatnonzero(~self.needs_reset).tolist():
                self._trajs.see_agent_info(i, rows.agent_info_of(t, i))
        self._step_all(t, rows, actions, rewards, ended)
        rows.write_results(t, self._add_row(t, rows, rewards, ended), ended)

    def _step_all(
        self, t: int, rows: Rows, actions: list[Any], rewards: list[Any], ended: list[End]
    ) -> None:
        """Step all that do not wait; results go into the lists and into rows t and t + 1."""
        indices: Sequence[int] = self._indices
        steps = self._steps
        if self.stepper.n_waiting:
            indices, steps, actions = self._leave_out_waiting(t, rows, actions, rewards)
        # Looked up once: this loop is what a step costs.
        cells: Any = None if rows.single is None else rows.single[t + 1]
        nested, infos = cells is None, rows.env_info
        record = self._trajs.step if self._trajs.per_step else None
        i = -1
        try:
            for i, step, action in zip(indices, steps, actions, strict=False):
                observation, reward, terminated, truncated, info = step(action)
                rewards[i] = reward
                if observation is None:
                    raise none_observed(self.stepper.name(i))
                if record is not None:
                    record(i, observation, action, float(reward), terminated, truncated, info)
                if terminated or truncated:
                    ended.append((i, bool(terminated), bool(truncated)))
                    observation, final = self.stepper.end_episode(i, observation)
                    self._final.append(FinalObservation(t, rows.lo + i, final, bool(truncated)))
                if nested:
                    rows.write_observation(t + 1, i, observation)
                else:
                    cells[i] = observation
                # Last, as an info that does not fit must not hide the end of an episode.
                if infos is not None:
                    infos.write(t, i, info, ended=terminated or truncated)
        except Exception as error:
            # By a note, not a new exception: the error keeps its type, which the user's code may expect.
            add_note(error, f"in {self.stepper.name(i)}, during step")
            self._abandon_row(t, rows, rewards, ended, i)
            raise

    def _abandon_row(
        self, t: int, rows: Rows, rewards: list[Any], ended: list[End], failed: int | None
    ) -> None:
        """Keep what there is of a row that failed: other environments' results remain valid."""
        self._trajs.abandon_row(rewards, ended)
        rows.write_part(t, rewards, ended, failed)

    def _leave_out_waiting(
        self, t: int, rows: Rows, actions: list[Any], rewards: list[Any]
    ) -> tuple[list[int], list[Callable[[Any], Any]], list[Any]]:
        """Write zeros for those that wait; return what the loop goes over for the others."""
        for i in np.flatnonzero(self.needs_reset).tolist():
            rewards[i] = 0.0
            # Cleared, not left: the row holds observations of an earlier batch, which an agent would act on.
            rows.clear_observation(t + 1, i)
        awake: list[int] = np.flatnonzero(~self.needs_reset).tolist()
        return awake, [self._steps[i] for i in awake], [actions[i] for i in awake]

    def _add_row(
        self, t: int, rows: Rows, rewards: list[Any], ended: list[End]
    ) -> NDArray[np.float64]:
        try:
            return self._trajs.add_row(rewards, ended)
        except Exception as error:
            # Only now: to look at each reward beforehand would cost every row what this costs a failed one.
            wrong = [i for i, reward in enumerate(rewards) if not is_number(reward)]
            failed = wrong[0] if wrong else None
            self._abandon_row(t, rows, rewards, ended, failed)
            if failed is None:
                raise
            what = (
                f"{self.stepper.name(failed)}: reward: expected a number, got {rewards[failed]!r}"
            )
            raise TypeError(what) from error

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[i]` random steps and write the observations reached into row `t`.

        Episodes that end on the way are not reported; the one in progress is, in full.
        """
        rows = self._bound()
        check_row(t, rows.T + 1, self.name)
        check_counts(counts, len(self._indices), self.name)
        stepper = self.stepper
        # Random steps go past the ends of episodes, in cages that wait for resets too.
        automatic, stepper.reset_automatically = stepper.reset_automatically, True
        # Those that ended in rows before are kept; they have not been collected yet.
        completed = self._trajs.count()
        try:
            for i, count in enumerate(counts):
                # Each with draws of its own action space: the same, however environments are divided among
                # processes.
                for _ in range(count):
                    rows.write_observation(t, i, stepper.random_one(i)[1].observation)
        finally:
            stepper.reset_automatically = automatic
            self._trajs.forget_after(completed)

    def _bound(self) -> Rows:
        # Not an assertion: a cage may be used by its other methods without ever being bound.
        if self._rows is None:
            raise WrongStateError(f"{self.name}: no samples buffer was set")
        return self._rows

    def states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment, between two rows."""
        return environment_states(self.stepper)

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Take back what `states` returned; for `salt` and errors see `load_environment_states`."""
        # No reset has to come first: the states bring episodes that are in progress.
        load_environment_states(self.stepper, states, salt)
        self._started = True

    def take_completed(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by column, then in time."""
        return self._trajs.take()

    def take_packed(self, *, at_once: bool = False) -> Packed:
        """Return the same for `unpack`; see there for `at_once`."""
        return self._trajs.take_packed(at_once=at_once)

    @property
    def packs_numbers(self) -> bool:
        """Whether `take_packed` returns nothing but numbers."""
        return not self._trajs.per_step

    def take_final(self, *, truncated_only: bool = False) -> list[FinalObservation]:
        """Return the last observations of the episodes that ended in rows since the last call."""
        # Those that are not asked for go as well: a later call must not return them for another batch.
        final, self._final = self._final, []
        # Sorted out here, where they are: a sampler that bootstraps sends none of the others through a pipe.
        return [one for one in final if one.truncated] if truncated_only else final

    @property
    def has_completed(self) -> bool:
        """Whether `take_completed` would return anything."""
        return self._trajs.has_completed

    @property
    def has_final(self) -> bool:
        """Whether `take_final` would return anything."""
        return bool(self._final)

    def close(self) -> None:
        """Close all environments, each whatever the others do; raises the first error at the end."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.release()
        self.stepper.close()
