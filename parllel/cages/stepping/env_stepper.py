"""Environments stepped one at a time: made, seeded, checked, reset ahead of time and closed.

    made        needs_reset, first seed      steps[i]: with checks
    reset       seed spent                   later resets go on with the environment's own generator
    ended       needs_reset, or reset again  steps[i]: the environment's own `step`
    prepared    still needs_reset            reset ahead of time; the observation waits for a row

The methods write nothing to batches: what they return belongs to the environment, which may overwrite it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.buffers.tree import buffer_map
from parllel.cages.stepping.checks import check_reset, check_step, no_number, old_reset
from parllel.cages.stepping.make_envs import (
    EnvFactory,
    claim_env,
    make_env,
    release_envs,
    seeded_action_space,
    spaces_of,
    words_of,
)
from parllel.cages.stepping.observation_check import ObservationCheck
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.workers.answers import Step
from parllel.cages.workers.follow import follow
from parllel.errors import WrongStateError, add_note, first_of
from parllel.types import Tree


class EnvStepper:
    """A list of environments in this process, each stepped by itself.

    Args:
        factories: make the environments.
        seeds: for each a seed sequence or int for its generator and its action space.
        traj_info: makes the record of one episode.
        reset_automatically: reset at the end of an episode within the same step; otherwise an ended
            environment stays still until the next reset.
        index: number of the first one, for messages.
        check: test what environments return: "first_episode" of each, or "always".

    Attributes:
        envs: the environments; empty after `close`.
        spaces: of each of them.
        action_spaces: copies with generators of their own.
        steps: what steps each of them: with checks at first, its own method from then on.
        trajs: their episodes.
        needs_reset: [n] bool.
        n_waiting: how many need a reset.
        reset_automatically: the argument of that name.
        first_seeds: of each environment, None where it had none.
        seeds: of each environment's next reset, None where its generator goes on.
        prepared: of each environment that was reset ahead of time its observation and info, else None.

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
        index: int,
        check: str,
    ) -> None:
        # Before any environment is made, which may take long or start programs.
        if check not in ("first_episode", "always"):
            raise ValueError(f"check: expected 'first_episode' or 'always', got {check!r}")
        n = len(factories)
        # These exist before the first environment does, so that `close` can be called whatever fails.
        self.envs: list[gym.Env[Any, Any]] = []
        self.action_spaces: list[gym.Space[Any]] = []
        self.steps: list[Callable[[Any], Any]] = []
        self._index = index
        self._always_check = check == "always"
        self.reset_automatically = reset_automatically
        try:
            self._make(factories, seeds)
            self.spaces = spaces_of(self.envs, index)
            self.trajs = follow(traj_info, n)
        except BaseException:
            with suppress(Exception):  # what was raised first is what matters
                self.close()
            raise
        self._check_observation = ObservationCheck(self.spaces.observation)
        # Kept for environments without a state: a resumed run derives other seeds from these.
        self.first_seeds = [words_of(seed)[0] for seed in seeds]
        self.seeds = list(self.first_seeds)
        self._checking = [True] * n
        # Added to the list, never assigned: `Environments` goes over this very list.
        self.steps += [partial(self._checked_step, i) for i in range(n)]
        self.needs_reset: NDArray[np.bool_] = np.ones(n, bool)
        self.n_waiting = n  # counted, as every row asks for it
        # In private memory, as it is not known yet which row the next reset is written to.
        self.prepared: list[tuple[Tree, dict[str, Any]] | None] = [None] * n
        nested = isinstance(self.spaces.observation, (gym.spaces.Dict, gym.spaces.Tuple))
        self._copied: Callable[[Tree], Tree] = partial(buffer_map, np.array) if nested else np.array

    def _make(self, factories: Sequence[EnvFactory], seeds: Sequence[Any]) -> None:
        for i, (factory, seed) in enumerate(zip(factories, seeds, strict=True), self._index):
            try:
                env = make_env(factory)
                # Before it is in the list, or the environment of another cage would be closed with these.
                claim_env(env, self, f"environment {i}")
                # In the list at once: it must be closed if its action space, or the next one, fails.
                self.envs.append(env)
                self.action_spaces.append(seeded_action_space(self.envs[-1], seed))
            except BaseException as error:
                add_note(error, f"in environment {i}, while it was made")
                raise

    def name(self, i: int) -> str:
        """Return what messages call the i-th environment."""
        return f"environment {self._index + i} ({self.spaces.name})"

    def reset_one(self, i: int) -> tuple[Tree, dict[str, Any]]:
        """Reset an environment, unless it has been ahead of time; return its observation and info."""
        result = self._restart(i)
        self.trajs.begin(i)
        return result

    def _restart(self, i: int) -> tuple[Tree, dict[str, Any]]:
        # Used once. A reset ahead of time is the next reset, whatever asks for it: another one would start
        # differently.
        prepared, self.prepared[i] = self.prepared[i], None
        result = self._reset(i) if prepared is None else prepared
        # After the reset, which may raise: then the environment still needs one.
        if self.needs_reset[i]:
            self.needs_reset[i] = False
            self.n_waiting -= 1
        return result

    def _reset(self, i: int) -> tuple[Tree, dict[str, Any]]:
        try:  # not `named`, which costs a quarter of a short step
            result = self.envs[i].reset(seed=self.seeds[i])
            self.seeds[i] = None  # not before: a reset that failed may be tried again
            if self._checking[i]:
                check_reset(result, self.name(i))
                what = f"{self.name(i)}: observation of reset"
                self._check_observation(result[0], what)
        except Exception as error:
            if (old := old_reset(error, self.name(i))) is not None:
                raise old from error
            add_note(error, f"in {self.name(i)}, during reset")
            raise
        return result

    def prepare_resets(self) -> None:
        """Reset those that have ended, into private memory that the next `reset_one` hands out."""
        for i in range(len(self.envs)):
            if self.needs_reset[i] and self.prepared[i] is None:
                # Still marked in `needs_reset`, by which samplers know where an episode is to begin.
                observation, info = self._reset(i)
                self.prepared[i] = self._copied(observation), info

    def step_one(self, i: int, action: Any) -> Step:
        """Step an environment, and reset it if it is done and that is the policy."""
        self._check_steppable(i)
        # Not in the row loops, but here a context is affordable: a caller waits for each of these steps.
        with self.named(i, "step"):
            observation, reward, terminated, truncated, info = self.steps[i](action)
            try:
                reward = float(reward)
            except (TypeError, ValueError):
                raise no_number(reward, self.name(i)) from None
        # Before the reset that an end may bring, which could overwrite the observation in place.
        self.trajs.step(i, observation, action, reward, terminated, truncated, info)
        if not (terminated or truncated):
            return Step(observation, observation, reward, False, False, info)
        self.trajs.end(i)
        final = self.end_episode(i, observation)
        after = self.follow_episode(i, final)
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
        action = self.action_spaces[i].sample()
        return action, self.step_one(i, action)

    def _check_steppable(self, i: int) -> None:
        if self.needs_reset[i]:
            raise WrongStateError(f"{self.name(i)}: stepped before a reset")

    def end_episode(self, i: int, observation: Tree) -> Tree:
        """Return a copy of the episode's last observation; `follow_episode` comes next.

        The trajectories are left to the caller, who may add up a row of them.
        """
        # The first episode is over, and it showed nothing wrong: from here on a step costs no check.
        if self._checking[i] and not self._always_check:
            self._checking[i] = False
            self.steps[i] = self.envs[i].step
        # Before the reset, which takes it back: if that raises, the environment is known to need one.
        self.needs_reset[i] = True
        self.n_waiting += 1
        return self._copied(observation)  # environments reuse their arrays

    def follow_episode(self, i: int, final: Tree) -> Tree:
        """Return what to act on after an episode: of the next one, after a reset, if that is the policy.

        Apart from `end_episode`: a reset that raises must not take the last observation along.
        """
        return self._restart(i)[0] if self.reset_automatically else final

    @contextmanager
    def named(self, i: int, doing: str) -> Iterator[None]:
        """Add a note to errors raised within: which environment it was, and what it was doing."""
        try:
            yield
        except Exception as error:
            add_note(error, f"in {self.name(i)}, during {doing}")
            raise

    def close(self) -> None:
        """Close all environments, each whatever the others do; raises the first error at the end."""
        # Emptied first: a second close has nothing to do, even if the first one raised half-way.
        envs = list(self.envs)
        self.envs.clear()
        self.steps.clear()  # those that check refer to this object: buffers would stay for longer
        errors = []
        for env in envs:
            # All of them, whatever one raises: each may hold a process, a file or a window.
            try:
                env.close()
            except Exception as error:
                errors.append(error)
        release_envs(self)
        if errors:
            raise first_of(errors)
