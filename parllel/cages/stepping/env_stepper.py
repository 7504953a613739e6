"""Environments stepped one by one: construction, seeding, checks, resets, states and closing.

    made        needs_reset, first seed      steps[i]: with checks
    reset       seed used up                 later resets continue the environment's own generator
    ended       needs_reset, or reset again  steps[i]: the environment's own `step`
    prepared    still needs_reset            reset ahead of time; the observation waits for a row

Nothing is written to batches. Returned values belong to the environment, which may overwrite them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.buffers.tree import buffer_map
from parllel.cages.stepping.batched_trajectories import follow
from parllel.cages.stepping.checks import check_reset, check_step, no_number, old_reset
from parllel.cages.stepping.make_envs import (
    EnvFactory,
    claim_env,
    make_env,
    release_envs,
    seeded_action_space,
    spaces_of,
)
from parllel.cages.stepping.observation_check import ObservationCheck
from parllel.cages.stepping.step_result import Step
from parllel.cages.stepping.stepper import Stepper, set_env_attribute
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.errors import WrongStateError, add_note, first_of
from parllel.types import State, Tree


class EnvStepper(Stepper):
    """Steps a list of environments in this process, one by one.

    Args:
        factories: functions that make the environments.
        traj_info: function that makes the record of one episode.
        seeds, reset_automatically, index, check: as for `Stepper`.

    Attributes, besides those of `Stepper`:
        envs: the environments; empty after `close`.
        steps: the function that steps each environment. At first it checks the results; later it is
            the environment's own `step`.
        checking: whether the results of each environment are checked.
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        seeds: Sequence[Any],
        traj_info: TrajInfoFactory,
        *,
        reset_automatically: bool,
        index: int,
        check: str,
    ) -> None:
        super().__init__(seeds, reset_automatically=reset_automatically, index=index, check=check)
        n = len(factories)
        # Set before the first environment is made, so that `close` works whatever fails.
        self.envs: list[gym.Env[Any, Any]] = []
        self.steps: list[Callable[[Any], Any]] = []
        try:
            self._make(factories)
            self.spaces = spaces_of(self.envs, index)
            self.trajs = follow(traj_info, n)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self.close()
            raise
        self._check_observation = ObservationCheck(self.spaces.observation)
        self.checking = [True] * n
        # Extended in place, never reassigned: `Environments` iterates over this very list.
        self.steps += [partial(self._checked_step, i) for i in range(n)]
        nested = isinstance(self.spaces.observation, (gym.spaces.Dict, gym.spaces.Tuple))
        self._copied: Callable[[Tree], Tree] = partial(buffer_map, _copied) if nested else _copied

    def _make(self, factories: Sequence[EnvFactory]) -> None:
        for i, (factory, seed) in enumerate(
            zip(factories, self._action_seeds, strict=True), self.index
        ):
            try:
                env = make_env(factory)
                # Before it is in the list: if another cage owns it, `close` must not close it.
                claim_env(env, self, f"environment {i}")
                # Right away: it must be closed if its action space or the next environment fails.
                self.envs.append(env)
                self.action_spaces.append(seeded_action_space(env.action_space, seed))
            except BaseException as error:
                add_note(error, f"in environment {i}, while it was made")
                raise

    @property
    def name(self) -> str:
        """Name of the first environment, for messages."""
        return self.name_of(0)

    def reset_one(self, i: int) -> tuple[Tree, dict[str, Any]]:
        """Reset an environment, or use its prepared reset; return its observation and info."""
        result = self._restart(i)
        self.trajs.begin(i)
        return result

    def _restart(self, i: int) -> tuple[Tree, dict[str, Any]]:
        # A prepared reset is used by whatever resets next, and once: another reset would draw a different
        # episode.
        prepared = self.prepared.pop(i, None)
        result = self._reset(i) if prepared is None else prepared
        # After the reset: if it raised, the environment still needs one.
        if self.needs_reset[i]:
            self.needs_reset[i] = False
            self.n_waiting -= 1
        return result

    def _reset(self, i: int) -> tuple[Tree, dict[str, Any]]:
        try:  # not `named`, which takes a quarter of a short step
            if self.options is None:
                result = self.envs[i].reset(seed=self.seeds[i])
            else:
                result = self.envs[i].reset(seed=self.seeds[i], options=self.options)
            self.seeds[i] = None  # not earlier: a failed reset may be repeated
            if self.checking[i]:
                check_reset(result, self.name_of(i))
                what = f"{self.name_of(i)}: observation of reset"
                self._check_observation(result[0], what)
        except Exception as error:
            if (old := old_reset(error, self.name_of(i))) is not None:
                raise old from error
            add_note(error, f"in {self.name_of(i)}, during reset")
            raise
        return result

    def prepare_resets(self) -> None:
        """Reset ended environments ahead of time, into private memory for the next `reset_one`."""
        for i in range(len(self.envs)):
            if self.needs_reset[i] and i not in self.prepared:
                # `needs_reset` stays set: samplers use it to see where an episode begins.
                # Runs after the worker's reply to the row, so an error reaches the cage
                # only with its next call.
                observation, info = self._reset(i)
                self.prepared[i] = self._copied(observation), info

    def step_one(self, i: int, action: Any) -> Step:
        """Step an environment, and reset it at the end of an episode if resets are automatic."""
        self._check_steppable(i)
        # A context manager is too slow for the row loops, but affordable here, where a caller awaits each
        # step.
        with self.named(i, "step"):
            observation, reward, terminated, truncated, info = self.steps[i](action)
            try:
                reward = float(reward)
            except (TypeError, ValueError):
                raise no_number(reward, self.name_of(i)) from None
        # Before a possible reset, which may overwrite the observation in place.
        self.trajs.step(i, observation, action, reward, terminated, truncated, info)
        if not (terminated or truncated):
            return Step(observation, observation, reward, False, False, info)
        self.trajs.end(i)
        final = self.end_episode(i, observation)
        after = self.follow_episode(i, final)
        return Step(after, final, reward, bool(terminated), bool(truncated), info)

    def _checked_step(self, i: int, action: Any) -> Any:
        result = self.envs[i].step(action)
        check_step(result, self.name_of(i))
        what = f"{self.name_of(i)}: observation of step"
        self._check_observation(result[0], what)
        if self._check_once:
            self._stop_checking(i)
        return result

    def random_one(self, i: int) -> tuple[Any, Step]:
        """Step an environment with an action sampled from its space; return the action and the step."""
        self._check_steppable(i)  # before sampling, so that a refused call draws no number
        action = self.action_spaces[i].sample()
        return action, self.step_one(i, action)

    def _check_steppable(self, i: int) -> None:
        if self.needs_reset[i]:
            raise WrongStateError(f"{self.name_of(i)}: stepped before a reset")

    def end_episode(self, i: int, observation: Tree) -> Tree:
        """Return a copy of the episode's final observation. Call `follow_episode` next.

        The caller updates the trajectories, possibly for a whole row at a time.
        """
        # The first episode passed all checks: from here on steps run without them.
        self.wait_for_reset(i)
        return self._copied(observation)  # environments reuse their arrays

    def restart(self, i: int) -> Tree:
        """Reset an environment whose episode has ended; return its first observation.

        The same as `end_episode` and `follow_episode` with automatic resets, without the copy.
        """
        if self.checking[i] and not self._always_check:
            self._stop_checking(i)
        if self.prepared:
            self.wait_for_reset(i)
            return self._restart(i)[0]
        try:
            return self._reset(i)[0]
        except BaseException:  # Ctrl-C too: the environment still needs a reset
            self.wait_for_reset(i)
            raise

    def wait_for_reset(self, i: int) -> None:
        """Mark an environment whose episode has ended."""
        if self.checking[i] and not self._always_check:
            self._stop_checking(i)
        # Before the reset, which clears it: if that raises, the environment still needs a reset.
        self.needs_reset[i] = True
        self.n_waiting += 1

    def end_checks(self, ended: Sequence[int]) -> None:
        """Stop checking after a checked row in which the episodes of `ended` ended, as `check` says."""
        if not self._always_check:
            for i in range(len(self.envs)) if self._check_once else ended:
                self._stop_checking(i)

    def _stop_checking(self, i: int) -> None:
        self.checking[i] = False
        self.steps[i] = self.envs[i].step

    def follow_episode(self, i: int, final: Tree) -> Tree:
        """Return the observation to act on: the next episode's if resets are automatic, else `final`.

        This is separate from `end_episode` so that the final observation is kept even if the reset
        raises.
        """
        return self._restart(i)[0] if self.reset_automatically else final

    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment, found through its wrappers."""
        return [env.get_wrapper_attr(name) for env in self.envs]

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment, on the wrapper that has it."""
        for env in self.envs:
            set_env_attribute(env, name, value)

    def set_each(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment to its value, on the wrapper that has it."""
        for env, value in zip(self.envs, values, strict=True):
            set_env_attribute(env, name, value)

    def apply(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...] | None]
    ) -> list[Any]:
        """Call a function with each selected environment."""
        return [
            None if call is None else function(env, *call)
            for env, call in zip(self.envs, calls, strict=True)
        ]

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment, found through its wrappers."""
        # All are looked up before any is called, so a misspelled name changes nothing.
        return [method(*args, **kwargs) for method in self.get(name)]

    def _env_states(self) -> list[tuple[State | None, str | None]]:
        return self._states_of(self.envs)

    def _load_env(self, i: int, state: State) -> None:
        self._load_single(i, self.envs[i], state)

    def close(self) -> None:
        """Close all environments even if some fail, then raise the first error. Idempotent."""
        # Emptied first: a second call does nothing, even if the first raised half-way.
        envs = list(self.envs)
        self.envs.clear()
        self.steps.clear()  # checked steps refer to this object, a cycle that would keep buffers alive
        errors = []
        for env in envs:
            # Even if others raise: each may hold a process, a file or a window.
            try:
                env.close()
            except Exception as error:
                errors.append(error)
        release_envs(self)
        if errors:
            raise first_of(errors)


def _copied(leaf: Any) -> Any:
    # A number cannot change.
    return leaf if isinstance(leaf, (np.generic, int, float)) else np.array(leaf)
