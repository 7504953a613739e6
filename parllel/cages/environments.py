"""The one loop that steps a list of environments over a row; cages place it where it is to run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.buffers import NamedArrayTuple, buffer_map
from parllel.cages.checks import check_observation, check_reset, check_step
from parllel.cages.rows import Rows
from parllel.cages.spaces import Spaces
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WrongStateError, add_note
from parllel.types import Tree

EnvFactory: TypeAlias = Callable[[], "gym.Env[Any, Any]"]
TrajInfoFactory: TypeAlias = Callable[[], TrajInfo]


class Step(NamedTuple):
    """One environment's answer. `observation` is what to act on next: after a reset, if there was one."""

    observation: Tree
    next_observation: Tree
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class FinalObservation(NamedTuple):
    """The true last observation of an episode that ended at row `row` of column `column`."""

    row: int
    column: int
    observation: Tree


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
        self._index = index
        self._reset_automatically = reset_automatically
        self._always_check = check == "always"
        self._make_traj_info = traj_info
        try:
            for factory, seed in zip(factories, seeds, strict=True):
                self.envs.append(_make(factory))
                self._action_spaces.append(_seeded_action_space(self.envs[-1], seed))
        except BaseException as error:
            add_note(error, f"in environment {index + len(self.envs)}, while it was made")
            with suppress(Exception):  # what was raised first is what matters
                self.close()
            raise
        n = len(self.envs)
        self.spaces = _spaces_of(self.envs)
        self._seeds = [_words(seed)[0] for seed in seeds]
        self._steps = [env.step for env in self.envs]
        self._checking = [True] * n
        self.needs_reset: NDArray[np.bool_] = np.ones(n, bool)
        self._started = False
        self._prepared: list[tuple[Tree, dict[str, Any]] | None] = [None] * n
        self._trajs = [traj_info() for _ in range(n)]
        self._completed: list[tuple[int, TrajInfo]] = []
        self._final: list[FinalObservation] = []
        self._rows: Rows | None = None

    def __len__(self) -> int:
        return len(self.envs)

    def name(self, i: int) -> str:
        """Return what messages call the i-th environment."""
        return f"environment {self._index + i} ({self.spaces.name})"

    # ------------------------------------------------------------------ one environment

    def reset_one(self, i: int) -> tuple[Tree, dict[str, Any]]:
        """Reset an environment, unless it has been ahead of time; return its observation and info."""
        prepared, self._prepared[i] = self._prepared[i], None
        result = self._reset(i) if prepared is None else prepared
        self._trajs[i] = self._make_traj_info()
        self.needs_reset[i] = False
        return result

    def _reset(self, i: int) -> tuple[Tree, dict[str, Any]]:
        seed, self._seeds[i] = self._seeds[i], None
        with self._named(i, "reset"):
            result = self.envs[i].reset(seed=seed)
            if self._checking[i]:
                check_reset(result, self.name(i))
                what = f"{self.name(i)}: observation of reset"
                check_observation(self.spaces.observation, result[0], what)
        return result

    def step_one(self, i: int, action: Any) -> Step:
        """Step an environment, and reset it if it is done and that is the policy."""
        self._check_steppable(i)
        with self._named(i, "step"):
            result = self._steps[i](action)
            if self._checking[i]:
                check_step(result, self.name(i))
                check_observation(
                    self.spaces.observation, result[0], f"{self.name(i)}: observation of step"
                )
        observation, reward, terminated, truncated, info = result
        reward = float(reward)
        traj = self._trajs[i]
        traj.step(observation, action, reward, terminated, truncated, info)
        if not (terminated or truncated):
            return Step(observation, observation, reward, False, False, info)
        after, final = self._end_episode(i, observation)
        return Step(after, final, reward, bool(terminated), bool(truncated), info)

    def random_one(self, i: int) -> tuple[Any, Step]:
        """Step an environment with an action drawn from its space; return that too."""
        self._check_steppable(i)  # before the draw, which must not be lost
        action = self._action_spaces[i].sample()
        return action, self.step_one(i, action)

    def _check_steppable(self, i: int) -> None:
        if self.needs_reset[i]:
            raise WrongStateError(f"{self.name(i)}: stepped before a reset")

    # ------------------------------------------------------------------ rows

    def bind(self, action: Tree, env: NamedArrayTuple, columns: slice) -> None:
        """Make views of the rows of `columns`; one column for each environment."""
        B = env.reward.shape[1]
        if not 0 <= columns.start <= columns.stop <= B or columns.stop - columns.start != len(self):
            raise ValueError(
                f"{self.name(0)}: columns: expected {len(self)} of the {B} that there are, got {columns}"
            )
        self._rows = Rows(action, env, columns, self.spaces)

    def reset_rows(self, t: int, *, everyone: bool) -> None:
        """Write reset observations into row `t`: of all, or of those that need a reset."""
        rows = self._bound()
        check_row(t, rows.T + 1, self.name(0))
        for i in range(len(self.envs)):
            if everyone or self.needs_reset[i]:
                observation, _ = self.reset_one(i)
                rows.write_observation(t, i, observation)
        self._started = True

    def prepare_resets(self) -> None:
        """Reset ended environments ahead of time, into private memory."""
        for i in range(len(self.envs)):
            if self._started and self.needs_reset[i] and self._prepared[i] is None:
                observation, info = self._reset(i)
                self._prepared[i] = buffer_map(np.array, observation), info

    def step_row(self, t: int) -> None:
        """Step everyone with the actions of row `t`; ended ones stay still and get zeros."""
        rows = self._bound()
        if rows.read_actions is None:
            raise WrongStateError(f"{self.name(0)}: bound without a buffer of actions")
        self._check_row(t, rows)
        self._run_row(t, rows, rows.read_actions(t))

    def random_row(self, t: int) -> None:
        """Draw the actions of row `t` from the action spaces, write them, and step."""
        rows = self._bound()
        self._check_row(t, rows)
        actions = [space.sample() for space in self._action_spaces]
        for i, action in enumerate(actions):
            rows.write_action(t, i, action)
        self._run_row(t, rows, actions)

    def _check_row(self, t: int, rows: Rows) -> None:
        check_row(t, rows.T, self.name(0))
        if not self._started:
            raise WrongStateError(f"{self.name(0)}: stepped before a reset")

    def _run_row(self, t: int, rows: Rows, actions: list[Any]) -> None:
        simple = rows.single is not None and not rows.env_info
        if simple and not any(self._checking) and not self.needs_reset.any():
            self._run_quick(t, rows, actions)
            return
        n = len(self.envs)
        rewards, terminations, truncations = [0.0] * n, [False] * n, [False] * n
        for i, action in enumerate(actions):
            if self.needs_reset[i]:
                rows.clear_observation(t + 1, i)
                continue
            step = self.step_one(i, action)
            rewards[i], terminations[i], truncations[i] = step[2:5]
            rows.write_observation(t + 1, i, step.observation)
            if step.terminated or step.truncated:
                self._final.append(FinalObservation(t, rows.lo + i, step.next_observation))
            if rows.env_info:
                with self._named(i, "info"):
                    rows.write_env_info(t, i, step.info)
        rows.write_results(t, rewards, terminations, truncations)

    def _run_quick(self, t: int, rows: Rows, actions: list[Any]) -> None:
        """Do what `_run_row` does where nothing is checked, stored aside or waited for."""
        assert rows.single is not None
        observations = rows.single[t + 1]
        n = len(self.envs)
        rewards, terminations, truncations = [0.0] * n, [False] * n, [False] * n
        i = -1
        try:
            for i, (step, action, traj) in enumerate(
                zip(self._steps, actions, self._trajs, strict=True)
            ):
                observation, reward, terminated, truncated, info = step(action)
                rewards[i] = reward = float(reward)
                traj.step(observation, action, reward, terminated, truncated, info)
                if terminated or truncated:
                    terminations[i], truncations[i] = bool(terminated), bool(truncated)
                    observation, final = self._end_episode(i, observation)
                    self._final.append(FinalObservation(t, rows.lo + i, final))
                observations[i] = observation
        except Exception as error:
            add_note(error, f"in {self.name(i)}, during step")
            raise
        rows.write_results(t, rewards, terminations, truncations)

    def _end_episode(self, i: int, observation: Tree) -> tuple[Tree, Tree]:
        """Return what to act on next and the episode's last observation."""
        self._checking[i] = self._always_check
        self._completed.append((i, self._trajs[i]))
        self.needs_reset[i] = True
        final = buffer_map(np.array, observation)  # environments reuse their arrays
        return (self.reset_one(i)[0] if self._reset_automatically else final), final

    def decorrelate(self, counts: Sequence[int], t: int) -> None:
        """Take `counts[i]` random steps and write the observations reached into row `t`.

        Episodes that end on the way are not reported; the one in progress is, in full.
        """
        rows = self._bound()
        check_row(t, rows.T + 1, self.name(0))
        check_counts(counts, len(self), self.name(0))
        automatic, self._reset_automatically = self._reset_automatically, True
        completed = len(self._completed)
        try:
            for i, count in enumerate(counts):
                for _ in range(count):
                    rows.write_observation(t, i, self.random_one(i)[1].observation)
        finally:
            self._reset_automatically = automatic
            del self._completed[completed:]

    def _bound(self) -> Rows:
        if self._rows is None:
            raise WrongStateError(f"{self.name(0)}: no samples buffer was set")
        return self._rows

    # ------------------------------------------------------------------ what is collected

    def take_completed(self) -> list[TrajInfo]:
        """Return the episodes that ended since the last call, by column, then in time."""
        completed, self._completed = self._completed, []
        return [traj for _, traj in sorted(completed, key=lambda pair: pair[0])]

    def take_final(self) -> list[FinalObservation]:
        """Return the last observations of the episodes that ended in rows since the last call."""
        final, self._final = self._final, []
        return final

    @property
    def has_completed(self) -> bool:
        """Whether `take_completed` would return anything."""
        return bool(self._completed)

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
        errors = []
        for env in envs:
            try:
                env.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _make(factory: EnvFactory) -> gym.Env[Any, Any]:
    env = factory()
    for needed in ("reset", "step", "observation_space", "action_space"):
        if not hasattr(env, needed):
            raise TypeError(
                f"environment factory: expected a gymnasium.Env, got {env!r} without {needed!r}"
            )
    return env


def _spaces_of(envs: Sequence[gym.Env[Any, Any]]) -> Spaces:
    first = envs[0]
    spec = getattr(first, "spec", None)
    name = spec.id if spec is not None else type(getattr(first, "unwrapped", first)).__name__
    for i, env in enumerate(envs):
        if (env.observation_space, env.action_space) != (
            first.observation_space,
            first.action_space,
        ):
            raise ValueError(f"environment {i}: its spaces differ from those of environment 0")
    return Spaces(first.observation_space, first.action_space, name)


def _words(seed: Any) -> tuple[int | None, int | None]:
    """Return two independent ints of a seed: for the environment and for its action space."""
    if seed is None:
        return None, None
    if not isinstance(seed, np.random.SeedSequence):
        seed = np.random.SeedSequence(seed)
    first, second = seed.generate_state(2)
    return int(first), int(second)


def _seeded_action_space(env: gym.Env[Any, Any], seed: Any) -> gym.Space[Any]:
    # A copy: environments of one class may share a space, whose generator would then be shared too.
    space = copy.deepcopy(env.action_space)
    word = _words(seed)[1]
    if word is not None:
        space.seed(word)
    return space


def check_row(t: int, rows: int, name: str) -> None:
    """Raise IndexError unless `t` is one of `rows`."""
    if not 0 <= t < rows:
        raise IndexError(f"{name}: row {t}: expected 0 to {rows - 1}")


def check_counts(counts: Sequence[int], n: int, name: str) -> None:
    """Raise ValueError unless there is a number of steps for each of `n` environments."""
    if len(counts) != n or min(counts) < 0:
        raise ValueError(f"{name}: counts: expected {n} of at least 0, got {list(counts)}")
