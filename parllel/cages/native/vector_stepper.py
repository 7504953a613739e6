"""The environments of a native vector environment: seeded, reset, stepped together, checked and followed.

    made        needs_reset, first seeds    check: until the first episode of each is over
    reset       seeds spent                 later resets go on with the environments' own generators
    ended       the next episode begins in the same row, by the environment itself or by a partial reset;
                or needs_reset
    waiting     at rest, within a SyncVectorEnv; in others it is stepped all the same, with an action of its
                space, and what it returns is ignored

Nothing is written to batches: what the methods return belongs to the environment, which may overwrite it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.cages.native.native_env import DISABLED, SAME_STEP, NativeEnv
from parllel.cages.native.native_trees import copied, pick, put, stacked
from parllel.cages.native.vector_env_factory import VectorEnvFactory
from parllel.cages.stepping.checks import old_reset, old_step
from parllel.cages.stepping.make_envs import claim_env, release_envs, words_of
from parllel.cages.stepping.resting_env import rest, wake_all
from parllel.cages.stepping.stacked_check import StackedCheck
from parllel.cages.stepping.stacked_step import StackedStep
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.workers.follow import follow
from parllel.errors import WrongStateError, add_note
from parllel.types import Tree


class VectorStepper:
    """One native vector environment in this process, and the state that a cage keeps of it.

    Args: as for `VectorEnvironments`.

    Attributes:
        native: the environment.
        n: how many it holds.
        spaces, name: of each environment; what messages call all of them.
        action_spaces: copies with generators of their own.
        trajs: their episodes.
        needs_reset: [n] bool.
        n_waiting: how many need a reset.
        reset_automatically: the argument of that name.
        first_seeds: of each environment, None where it had none.
        seeds: of each environment's next reset, None where its generator goes on.
        begun: of each environment that was reset ahead of its reset, the observation.
        same_step: whether the environment begins the next episode in the step that ends one.
    """

    def __init__(
        self,
        factory: VectorEnvFactory,
        seeds: Sequence[Any],
        traj_info: TrajInfoFactory,
        *,
        reset_automatically: bool,
        index: int,
        check: str,
    ) -> None:
        # Before the environment is made, which may take long or start programs.
        if check not in ("first_episode", "always"):
            raise ValueError(f"check: expected 'first_episode' or 'always', got {check!r}")
        self.n = len(seeds)
        self._index = index
        self.numbers = f"environments {index} to {index + self.n - 1}"
        words = [words_of(seed) for seed in seeds]
        self.first_seeds = [first for first, _ in words]
        try:
            self.native = NativeEnv(factory, self.first_seeds, self.numbers)
        except BaseException as error:
            add_note(error, f"in {self.numbers}, while they were made")
            raise
        # Before anything that closes it on an error: it may be the environment of another cage.
        claim_env(self.native.core, self, self.numbers)
        self.spaces = self.native.spaces
        self.name = f"{self.numbers} ({self.spaces.name})"
        try:
            self.trajs = follow(traj_info, self.n)
            self.action_spaces = [self._action_space(second) for _, second in words]
            self._check: StackedCheck | None = StackedCheck(
                self.spaces, self.n, self.name, self.name_of
            )
        except BaseException:
            with suppress(Exception):  # what was raised first is what matters
                self.close()
            raise
        self._always_check = check == "always"
        self._in_first_episode = np.ones(self.n, bool)
        self.same_step = self.native.mode == SAME_STEP
        self.reset_automatically = reset_automatically
        self.seeds: list[int | None] = list(self.first_seeds)
        self.needs_reset: NDArray[np.bool_] = np.ones(self.n, bool)
        self.n_waiting = self.n
        self.begun: dict[int, Tree] = {}
        # Whether nothing was stepped since a reset by the first seeds: another one then begins alike.
        self._just_seeded = False
        self._last: Tree = None  # the observation of the last step, unless some were reset since
        # What those that wait are stepped with: the buffer may hold anything for them.
        self._idle_action = self._action_space(0).sample()

    def _action_space(self, seed: int | None) -> Any:
        space = copy.deepcopy(self.spaces.action)
        if seed is not None:
            space.seed(seed)
        return space

    def name_of(self, i: int) -> str:
        """Return what messages call the i-th environment."""
        return f"environment {self._index + i} ({self.spaces.name})"

    def reset(self, *, everyone: bool) -> tuple[NDArray[np.intp], Tree]:
        """Reset all environments, or those that need it; return which, and their observations."""
        which = np.flatnonzero(self.needs_reset | everyone)
        if self.native.can_rest:
            wake_all(self.native.core)
        observation = self._reset_which(which) if len(which) else None
        for i in which.tolist():
            self.seeds[i] = None  # not before: a reset that failed may be tried again
            self.trajs.begin(i)
        self.begun.clear()
        self.needs_reset[which] = False
        self.n_waiting = 0
        self._last = None
        return which, observation

    def _reset_which(self, which: NDArray[np.intp]) -> Tree:
        seeds = None if all(self.seeds[i] is None for i in which.tolist()) else self.seeds
        if not self.begun:
            whole = len(which) == self.n
            return self._reset_all() if whole else self._reset_some(which, self._last, seeds)
        # A reset ahead of time is the next reset: another one would start differently.
        parts = dict(self.begun)
        others = np.array([i for i in which.tolist() if i not in parts], np.intp)
        if len(others):
            fresh = self._reset_some(others, self._last, seeds)
            parts.update((i, pick(fresh, k)) for k, i in enumerate(others.tolist()))
        return stacked(self.spaces.observation, [parts[i] for i in which.tolist()])

    def _reset_all(self) -> Tree:
        try:
            result = self.native.reset_all(self.seeds)
            if self._check is not None:
                self._check.reset(result)
        except Exception as error:
            if (old := old_reset(error, self._name_in(error))) is not None:
                raise old from error
            self._note(error, self.name, "reset")
            raise
        self._just_seeded = None not in self.seeds and self.seeds == self.first_seeds
        return result[0]

    def _reset_some(
        self, which: NDArray[np.intp], last: Tree, seeds: Sequence[int | None] | None = None
    ) -> Tree:
        try:
            return self.native.reset_some(which, last, seeds)
        except Exception as error:
            numbers = ", ".join(str(self._index + i) for i in which.tolist())
            self._note(error, f"environment {numbers} ({self.spaces.name})", "reset")
            raise

    def _name_in(self, error: Exception) -> str:
        i = self.native.index_in(error)
        return self.name if i is None else self.name_of(i)

    def _note(self, error: Exception, names: str, doing: str) -> None:
        """Add a note to an error: which environment it was, where that is known, and what it was doing."""
        i = self.native.index_in(error)
        add_note(error, f"in {names if i is None else self.name_of(i)}, during {doing}")

    def draw_actions(self, going: NDArray[np.bool_] | None = None) -> list[Any]:
        """Return a random action for each environment, drawn for those that are going."""
        if going is None:
            return [space.sample() for space in self.action_spaces]
        return [
            space.sample() if goes else self._idle_action
            for space, goes in zip(self.action_spaces, going.tolist(), strict=True)
        ]

    def step(self, actions: Tree) -> StackedStep:
        """Step all environments; `actions` is overwritten for those that wait."""
        if self.n_waiting:
            put(actions, self.needs_reset, self._idle_action)
        self._just_seeded = False
        try:
            result = self.native.step(actions)
            if self._check is not None:
                self._check.step(result)
            observation, reward, terminated, truncated, info = result
            ended = np.logical_or(terminated, truncated)
        except Exception as error:
            if (old := old_step(error, self._name_in(error))) is not None:
                raise old from error
            self._note(error, self.name, "step")
            raise
        self._last = observation
        return StackedStep(observation, reward, terminated, truncated, info, ended)

    def record(self, step: StackedStep, actions: Tree, going: NDArray[np.bool_]) -> None:
        """Pass a step of those that are going to their TrajInfos, one by one."""
        which = np.flatnonzero(step.ended & going)
        final = dict(zip(which.tolist(), self.finals(step, which), strict=True))
        for i in np.flatnonzero(going).tolist():
            self.trajs.step(
                i,
                final[i] if i in final else pick(step.observation, i),
                _plain(pick(actions, i)),
                float(step.reward[i]),
                bool(step.terminated[i]),
                bool(step.truncated[i]),
                step.info_of(i),
            )

    def finals(self, step: StackedStep, which: NDArray[np.intp]) -> list[Tree]:
        """Return copies of the last observations of the episodes that ended in this step."""
        return step.finals(which, same_step=self.same_step, name_of=self.name_of)

    def start_resets(self, which: NDArray[np.intp]) -> None:
        """Begin the resets of `which` that `end_episodes` is going to ask for, where that can be done."""
        if self.reset_automatically and not self.same_step:
            self.native.start_reset(which)

    def end_episodes(
        self, which: NDArray[np.intp], step: StackedStep, ended: NDArray[np.bool_]
    ) -> Tree | None:
        """Begin the next episodes of `which`, or let these environments wait, as the policy is.

        ended: [n], of all, those that wait as well.

        Returns the observations of resets that this took, [len(which), ...]; None where there were none.
        """
        if self._check is not None:
            self._in_first_episode[which] = False
            if not self._always_check and not self._in_first_episode.any():
                self._check = None
        if not self.reset_automatically:
            self._mark(which)
            self._let_wait(which, step, ended)
            return None
        if self.same_step or not len(which):
            return None
        try:
            return self._reset_some(which, step.observation)
        except BaseException:
            self._mark(which)
            raise

    def _mark(self, which: NDArray[np.intp]) -> None:
        self.needs_reset[which] = True
        self.n_waiting += len(which)

    def _let_wait(
        self, which: NDArray[np.intp], step: StackedStep, ended: NDArray[np.bool_]
    ) -> None:
        if self.native.can_rest:
            self._rest(which)
            if self.same_step:
                self.begun.update((i, copied(pick(step.observation, i))) for i in which.tolist())
        elif self.native.mode == DISABLED:
            # They are stepped with the others, which this mode allows after a reset alone.
            self._reset_some(np.flatnonzero(ended), step.observation)

    def _rest(self, which: NDArray[np.intp]) -> None:
        for i in which.tolist():
            rest(self.native.core, i)

    # ------------------------------------------------------------------ random steps outside of rows

    def random_steps(self, counts: Sequence[int]) -> tuple[NDArray[np.intp], Tree]:
        """Take `counts[i]` random steps of environment i, past the ends of episodes.

        All are stepped as often as the one with the most. The others rest afterwards; those that cannot begin
        an episode as late as leaves them their own number. Returns which were stepped or have begun, and
        their observations.

        Raises:
            WrongStateError: if an environment that waits is to be stepped.
        """
        for i in np.flatnonzero(self.needs_reset).tolist():
            if counts[i]:
                raise WrongStateError(f"{self.name_of(i)}: stepped before a reset")
        wanted, most, rests = np.array(counts), max(counts), self.native.can_rest
        # A reset by the same seeds leads to where the environments are now, if they have not been stepped.
        seeds = self.first_seeds if self._just_seeded else None
        # The step with which each begins; those that wait never do.
        begins = np.where(self.needs_reset, most + 1, most - wanted)
        # What all have come to, and the observation to act on of those that rest.
        now: Tree = None
        latest: Tree = None
        for k in range(most):
            if rests:
                going = wanted > k
                self._rest(np.flatnonzero(wanted == k))
            else:
                going = begins <= k
                if k:
                    self._begin(np.flatnonzero(begins == k), now, seeds)
            now = self._random_step(going)
            latest = now if latest is None else latest
            put(latest, going, pick(now, going))
        which = np.flatnonzero(wanted if rests else ~self.needs_reset)
        if rests:
            wake_all(self.native.core)
            self._rest(np.flatnonzero(self.needs_reset))
        else:
            # All have begun by now, and are where the last step has left them.
            self._begin(np.flatnonzero(begins == most), now, seeds)
            latest = now
        self._last = None  # some were reset since
        return which, pick(latest, which)

    def _begin(
        self, which: NDArray[np.intp], observation: Tree, seeds: Sequence[int | None] | None
    ) -> None:
        if len(which):
            put(observation, which, self._reset_some(which, observation, seeds))
            for i in which.tolist():
                self.trajs.begin(i)

    def _random_step(self, going: NDArray[np.bool_]) -> Tree:
        """Step with random actions those that are going; return a copy of all observations."""
        actions = stacked(self.spaces.action, self.draw_actions(going))
        step = self.step(actions)
        # One by one, as the others make no step.
        self.record(step, actions, going)
        for i in np.flatnonzero(step.ended & going).tolist():
            self.trajs.end(i)
        observation = copied(step.observation)
        which = np.flatnonzero(step.ended)
        if len(which) and not self.same_step:
            put(observation, which, self._reset_some(which, step.observation))
        return observation

    def remake(self) -> None:
        """Let the seeds of the next reset count, also where the environment took its seeds when made."""
        self.native.remake(self.seeds, self.numbers)

    def close(self) -> None:
        """Close the environment; may be called twice."""
        self._last = None
        release_envs(self)
        self.native.close()


def _plain(action: Tree) -> Tree:
    """Return numbers as Python's, as single environments get them."""
    if isinstance(action, dict):
        return {name: _plain(part) for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(map(_plain, action))
    return action.item() if isinstance(action, np.generic) else action
