"""The one loop that steps a list of environments over a row; cages place it where it is to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.buffers import NamedArrayTuple, buffer_map
from parllel.cages.answers import FinalObservation, Step
from parllel.cages.argument_checks import check_counts, check_row
from parllel.cages.checks import check_reset, check_step, none_observed
from parllel.cages.make_envs import (
    EnvFactory,
    make_env,
    seeded_action_space,
    spaces_of,
    words_of,
)
from parllel.cages.observation_check import ObservationCheck
from parllel.cages.rows import Rows
from parllel.cages.traj_info import TrajInfo
from parllel.cages.trajectories import End, Packed, TrajInfoFactory, follow, is_number
from parllel.env_states import (
    env_state,
    load_env_state,
    load_space_state,
    missing_env_state,
    space_state,
)
from parllel.errors import WrongStateError, add_note, first_of
from parllel.types import State, Tree


class Environments:
    """A list of environments in this process, and the rows that they write.

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
        if check not in ("first_episode", "always"):
            raise ValueError(f"check: expected 'first_episode' or 'always', got {check!r}")
        self.envs: list[gym.Env[Any, Any]] = []
        self._action_spaces: list[gym.Space[Any]] = []
        self.index = index
        self._reset_automatically = reset_automatically
        self._always_check = check == "always"
        self._steps: list[Callable[[Any], Any]] = []
        n = len(factories)
        try:
            self._make(factories, seeds)
            self.spaces = spaces_of(self.envs, index)
            self._trajs = follow(traj_info, n)
        except BaseException:
            with suppress(Exception):  # what was raised first is what matters
                self.close()
            raise
        self._check_observation = ObservationCheck(self.spaces.observation)
        self._first_seeds = [words_of(seed)[0] for seed in seeds]
        self._seeds = list(self._first_seeds)
        # What steps each environment: with checks at first, its own method from then on.
        self._checking = [True] * n
        self._steps = [partial(self._checked_step, i) for i in range(n)]
        self.needs_reset: NDArray[np.bool_] = np.ones(n, bool)
        self._n_waiting = n  # how many need a reset, which is asked in every row
        self._started = False
        self._prepared: list[tuple[Tree, dict[str, Any]] | None] = [None] * n
        nested = isinstance(self.spaces.observation, (gym.spaces.Dict, gym.spaces.Tuple))
        self._copied: Callable[[Tree], Tree] = partial(buffer_map, np.array) if nested else np.array
        self._final: list[FinalObservation] = []
        self._rows: Rows | None = None
        self._indices = range(n)

    def _make(self, factories: Sequence[EnvFactory], seeds: Sequence[Any]) -> None:
        for i, (factory, seed) in enumerate(zip(factories, seeds, strict=True), self.index):
            try:
                self.envs.append(make_env(factory))
                self._action_spaces.append(seeded_action_space(self.envs[-1], seed))
            except BaseException as error:
                add_note(error, f"in environment {i}, while it was made")
                raise

    def __len__(self) -> int:
        return len(self.envs)

    def name(self, i: int) -> str:
        """Return what messages call the i-th environment."""
        return f"environment {self.index + i} ({self.spaces.name})"

    # ------------------------------------------------------------------ one environment

    def reset_one(self, i: int) -> tuple[Tree, dict[str, Any]]:
        """Reset an environment, unless it has been ahead of time; return its observation and info."""
        result = self._restart(i)
        self._trajs.begin(i)
        return result

    def _restart(self, i: int) -> tuple[Tree, dict[str, Any]]:
        prepared, self._prepared[i] = self._prepared[i], None
        result = self._reset(i) if prepared is None else prepared
        if self.needs_reset[i]:
            self.needs_reset[i] = False
            self._n_waiting -= 1
        return result

    def _reset(self, i: int) -> tuple[Tree, dict[str, Any]]:
        try:  # not `_named`, which costs a quarter of a short step
            result = self.envs[i].reset(seed=self._seeds[i])
            self._seeds[i] = None  # not before: a reset that failed may be tried again
            if self._checking[i]:
                check_reset(result, self.name(i))
                what = f"{self.name(i)}: observation of reset"
                self._check_observation(result[0], what)
        except Exception as error:
            add_note(error, f"in {self.name(i)}, during reset")
            raise
        return result

    def step_one(self, i: int, action: Any) -> Step:
        """Step an environment, and reset it if it is done and that is the policy."""
        self._check_steppable(i)
        with self._named(i, "step"):
            observation, reward, terminated, truncated, info = self._steps[i](action)
            reward = float(reward)
        self._trajs.step(i, observation, action, reward, terminated, truncated, info)
        if not (terminated or truncated):
            return Step(observation, observation, reward, False, False, info)
        self._trajs.end(i)
        after, final = self._end_episode(i, observation)
        return Step(after, final, reward, bool(terminated), bool(truncated), info)

    def _checked_step(self, i: int, action: Any) -> Any:
        result = self.envs[i].step(action)
        check_step(result, self.name(i))
        what = f"{self.name(i)}: observation of step"
        self._check_observation(result[0], what)
        return result

    def random_one(self, i: int) -> tuple[Any, Step]:
        """Step an environment with an action drawn from its space; return that too."""
        self._check_steppable(i)  # before the draw, which must not be lost
        action = self._action_spaces[i].sample()
        return action, self.step_one(i, action)

    def _check_steppable(self, i: int) -> None:
        if self.needs_reset[i]:
            raise WrongStateError(f"{self.name(i)}: stepped before a reset")

    # ------------------------------------------------------------------ rows

    def bind(self, action: Tree, env: NamedArrayTuple, columns: slice) -> Rows:
        """Make, keep and return views of the rows of `columns`; one column for each environment."""
        B = env.reward.shape[1]
        if not 0 <= columns.start <= columns.stop <= B or columns.stop - columns.start != len(self):
            raise ValueError(
                f"{self.name(0)}: columns: expected {len(self)} of the {B} that there are, got {columns}"
            )
        self._rows = Rows(action, env, columns, self.spaces)
        return self._rows

    def reset_rows(self, t: int, *, everyone: bool) -> None:
        """Write reset observations into row `t`: of all, or of those that need a reset."""
        rows = self._bound()
        check_row(t, rows.T + 1, self.name(0))
        for i in range(len(self.envs)):
            if everyone or self.needs_reset[i]:
                observation, _ = self.reset_one(i)
                rows.write_observation(t, i, observation)
        self._started = True

    def prepare(self, t: int) -> None:
        """Do after row `t`, while nobody waits, what would be waited for later.

        Ended environments are reset, into private memory; after the last row statistics are added up.
        """
        if self._rows is not None and t + 1 == self._rows.T:
            self._trajs.prepare()
        if self._n_waiting:
            self._prepare_resets()

    def _prepare_resets(self) -> None:
        for i in range(len(self.envs)):
            if self._started and self.needs_reset[i] and self._prepared[i] is None:
                observation, info = self._reset(i)
                self._prepared[i] = self._copied(observation), info

    def step_row(self, t: int) -> None:
        """Step everyone with the actions of row `t`; ended ones stay still and get zeros."""
        rows = self._rows
        if rows is None or rows.read_actions is None or not 0 <= t < rows.T or not self._started:
            self._refuse_row(t)
        elif rows.cells is None or self._n_waiting or self._trajs.per_step:
            self._run_row(t, rows, rows.read_actions(t), by_agent=True)
        else:
            self._run_quick(t, rows, rows.read_actions(t), rows.cells[t + 1])

    def random_row(self, t: int) -> None:
        """Draw the actions of row `t` from the action spaces, write them, and step."""
        rows = self._bound()
        self._check_row(t, rows)
        actions = [space.sample() for space in self._action_spaces]
        for i, action in enumerate(actions):
            rows.write_action(t, i, action)
        self._run_row(t, rows, actions)

    def _refuse_row(self, t: int) -> None:
        """Raise what is wrong with stepping a row with the buffer's actions."""
        rows = self._bound()
        if rows.read_actions is None:
            raise WrongStateError(f"{self.name(0)}: bound without a buffer of actions")
        self._check_row(t, rows)

    def _check_row(self, t: int, rows: Rows) -> None:
        check_row(t, rows.T, self.name(0))
        if not self._started:
            raise WrongStateError(f"{self.name(0)}: stepped before a reset")

    def _run_quick(self, t: int, rows: Rows, actions: list[Any], cells: list[NDArray[Any]]) -> None:
        """Do what `_run_row` does, where nobody waits and there is one array of observations."""
        rewards: list[Any] = []
        ended: list[End] = []
        add_reward = rewards.append
        i = -1
        try:
            for i, step, action, cell in zip(
                self._indices, self._steps, actions, cells, strict=False
            ):
                observation, reward, terminated, truncated, _ = step(action)
                add_reward(reward)
                if observation is None:  # numpy would write NaN
                    raise none_observed(self.name(i))
                if terminated or truncated:
                    ended.append((i, bool(terminated), bool(truncated)))
                    observation, final = self._end_episode(i, observation)
                    self._final.append(FinalObservation(t, rows.lo + i, final, bool(truncated)))
                cell[...] = observation
        except Exception as error:
            add_note(error, f"in {self.name(i)}, during step")
            left_out: list[Any] = [None] * (len(self.envs) - len(rewards))
            self._abandon_row(t, rows, rewards + left_out, ended, i)
            raise
        rows.write_results(t, self._add_row(t, rows, rewards, ended), ended)

    def _run_row(self, t: int, rows: Rows, actions: list[Any], *, by_agent: bool = False) -> None:
        # None stands for a step that was not made.
        rewards: list[Any] = [None] * len(self._steps)
        ended: list[End] = []
        if by_agent and rows.agent_info is not None and self._trajs.sees_agent_info:
            for i in np.flatnonzero(~self.needs_reset).tolist():
                self._trajs.see_agent_info(i, rows.agent_info_of(t, i))
        self._step_all(t, rows, actions, rewards, ended)
        rows.write_results(t, self._add_row(t, rows, rewards, ended), ended)

    def _step_all(
        self, t: int, rows: Rows, actions: list[Any], rewards: list[Any], ended: list[End]
    ) -> None:
        """Step everyone who does not wait; what came of it goes into the lists and rows t, t + 1."""
        indices: Sequence[int] = range(len(self._steps))
        steps = self._steps
        if self._n_waiting:
            indices, steps, actions = self._leave_out_waiting(t, rows, actions, rewards)
        # Looked up once: this loop is what a step costs.
        cells: Any = None if rows.single is None else rows.single[t + 1]
        nested, infos = cells is None, rows.env_info
        tell = self._trajs.step if self._trajs.per_step else None
        i = -1
        try:
            for i, step, action in zip(indices, steps, actions, strict=False):
                observation, reward, terminated, truncated, info = step(action)
                rewards[i] = reward
                if observation is None:
                    raise none_observed(self.name(i))
                if tell is not None:
                    tell(i, observation, action, float(reward), terminated, truncated, info)
                if terminated or truncated:
                    ended.append((i, bool(terminated), bool(truncated)))
                    observation, final = self._end_episode(i, observation)
                    self._final.append(FinalObservation(t, rows.lo + i, final, bool(truncated)))
                if nested:
                    rows.write_observation(t + 1, i, observation)
                else:
                    cells[i] = observation
                if infos is not None:
                    infos.write(t, i, info, ended=terminated or truncated)
        except Exception as error:
            add_note(error, f"in {self.name(i)}, during step")
            self._abandon_row(t, rows, rewards, ended, i)
            raise

    def _abandon_row(
        self, t: int, rows: Rows, rewards: list[Any], ended: list[End], failed: int | None
    ) -> None:
        """Keep what there is of a row that failed: the others' results are theirs."""
        self._trajs.abandon_row(rewards, ended)
        rows.write_part(t, rewards, ended, failed)

    def _leave_out_waiting(
        self, t: int, rows: Rows, actions: list[Any], rewards: list[Any]
    ) -> tuple[list[int], list[Callable[[Any], Any]], list[Any]]:
        """Write zeros for those that wait; return what the loop goes over for the others."""
        for i in np.flatnonzero(self.needs_reset).tolist():
            rewards[i] = 0.0
            rows.clear_observation(t + 1, i)
        awake: list[int] = np.flatnonzero(~self.needs_reset).tolist()
        return awake, [self._steps[i] for i in awake], [actions[i] for i in awake]

    def _add_row(
        self, t: int, rows: Rows, rewards: list[Any], ended: list[End]
    ) -> NDArray[np.float64]:
        try:
            return self._trajs.add_row(rewards, ended)
        except Exception as error:
            wrong = [i for i, reward in enumerate(rewards) if not is_number(reward)]
            failed = wrong[0] if wrong else None
            self._abandon_row(t, rows, rewards, ended, failed)
            if failed is None:
                raise
            what = f"{self.name(failed)}: reward: expected a number, got {rewards[failed]!r}"
            raise TypeError(what) from error

    def _end_episode(self, i: int, observation: Tree) -> tuple[Tree, Tree]:
        """Return what to act on next and the episode's last observation."""
        if self._checking[i] and not self._always_check:
            self._checking[i] = False
            self._steps[i] = self.envs[i].step
        self.needs_reset[i] = True
        self._n_waiting += 1
        final = self._copied(observation)  # environments reuse their arrays
        return (self._restart(i)[0] if self._reset_automatically else final), final

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[i]` random steps and write the observations reached into row `t`.

        Episodes that end on the way are not reported; the one in progress is, in full.
        """
        rows = self._bound()
        check_row(t, rows.T + 1, self.name(0))
        check_counts(counts, len(self), self.name(0))
        automatic, self._reset_automatically = self._reset_automatically, True
        completed = self._trajs.count()
        try:
            for i, count in enumerate(counts):
                for _ in range(count):
                    rows.write_observation(t, i, self.random_one(i)[1].observation)
        finally:
            self._reset_automatically = automatic
            self._trajs.forget_after(completed)

    def _bound(self) -> Rows:
        if self._rows is None:
            raise WrongStateError(f"{self.name(0)}: no samples buffer was set")
        return self._rows

    # ------------------------------------------------------------------ checkpoints

    def states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment, between two rows.

        `missing` names what does not offer its state, `env` is None then.
        """
        return [self._state(i) for i in range(len(self.envs))]

    def _state(self, i: int) -> State:
        prepared, env = self._prepared[i], self.envs[i]
        with self._named(i, "state"):
            saved = env_state(env)
            missing = missing_env_state(env) if saved is None else None
            episode = self._trajs.state(i)
        return {
            "env": saved,
            "missing": missing,
            "waits": not self._reset_automatically,
            "seed": self._seeds[i],
            "needs_reset": bool(self.needs_reset[i]),
            # Where it was reset ahead of time, what nobody has seen yet.
            "prepared": None if prepared is None else [prepared[0]],
            "episode": episode,
            "action_space": space_state(self._action_spaces[i]),
        }

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Take back what `states` returned, into environments that were made alike.

        Where there is no state of an environment, it needs a reset afterwards, by a seed of its own that
        depends on `salt`, so that it does not play its first episodes again.

        Raises:
            ValueError: if it belongs to other environments, or other TrajInfos.
        """
        for i, state in enumerate(states):
            with self._named(i, "load_state"):
                self._load_state(i, state, salt)
        self._n_waiting = int(np.count_nonzero(self.needs_reset))
        self._started = True

    def _load_state(self, i: int, state: State, salt: int) -> None:
        self._prepared[i] = None
        self._trajs.begin(i)
        if state["action_space"] is not None:
            load_space_state(self._action_spaces[i], state["action_space"])
        if state["env"] is None:
            self._seeds[i] = _salted(self._first_seeds[i], salt)
            self.needs_reset[i] = True
            return
        kinds, waits = ("resets by itself", "waits to be reset"), not self._reset_automatically
        if bool(state["waits"]) != waits:
            raise ValueError(
                f"expected the state of an environment that {kinds[waits]}, got that of one that "
                f"{kinds[not waits]}"
            )
        load_env_state(self.envs[i], state["env"])
        self._seeds[i] = state["seed"]
        self.needs_reset[i] = state["needs_reset"]
        if state["prepared"] is not None:
            self._prepared[i] = state["prepared"][0], {}
        self._trajs.load_state(i, state["episode"])

    # ------------------------------------------------------------------ what is collected

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
        final, self._final = self._final, []
        return [one for one in final if one.truncated] if truncated_only else final

    @property
    def has_completed(self) -> bool:
        """Whether `take_completed` would return anything."""
        return self._trajs.has_completed

    @property
    def has_final(self) -> bool:
        """Whether `take_final` would return anything."""
        return bool(self._final)

    @contextmanager
    def _named(self, i: int, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            add_note(error, f"in {self.name(i)}, during {doing}")
            raise

    def close(self) -> None:
        """Close all environments, each whatever the others do; raises the first error at the end."""
        envs, self.envs = self.envs, []
        self._steps = []  # those that check refer to this object: buffers would stay for longer
        errors = []
        for env in envs:
            try:
                env.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise first_of(errors)


def _salted(seed: int | None, salt: int) -> int | None:
    """Return another seed for each `salt`; a missing one stays so."""
    return None if seed is None else int(np.random.SeedSequence([seed, salt]).generate_state(1)[0])
