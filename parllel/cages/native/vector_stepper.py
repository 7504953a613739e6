"""Seeding, resets, steps, checks and states of one native vector environment.

    made        needs_reset, first seeds    checked until the first episode of each is over
    reset       seeds used up               later resets continue the environments' own generators
    ended       the next episode begins in the same row, by the environment itself or by a partial reset;
                or needs_reset
    waiting     frozen, within a SyncVectorEnv; others step it with an action of its space, and the result
                is ignored

Nothing is written to batches. Returned values belong to the environment, which may overwrite them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.cages.native.native_env import DISABLED, SAME_STEP, NativeEnv
from parllel.cages.native.native_trees import copied, final_observation, pick, put, rows_of, stacked
from parllel.cages.stepping.batched_trajectories import follow
from parllel.cages.stepping.checks import StackedCheck, old_reset, old_step
from parllel.cages.stepping.make_envs import (
    VectorEnvFactory,
    claim_env,
    release_envs,
    seeded_action_space,
)
from parllel.cages.stepping.stepper import Stepper
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.envs.single_env_adapter import info_of
from parllel.envs.states.env_state import env_state, load_env_state, missing_env_state
from parllel.errors import WrongStateError, add_note
from parllel.types import State, Tree


class StackedStep(NamedTuple):
    """Result of one step of a vector environment, with n environments in each array.

    Attributes:
        observation: [n, ...], after the reset if the environment resets in the same step.
        reward, terminated, truncated: [n].
        info: the info returned by the environment.
        ended: [n] bool, terminated or truncated.
    """

    observation: Tree
    reward: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    info: dict[str, Any]
    ended: NDArray[np.bool_]

    def only(self, going: NDArray[np.bool_]) -> StackedStep:
        """Return a copy in which the rewards and flags of all other environments are cleared."""
        return self._replace(
            reward=np.where(going, self.reward, 0),
            terminated=self.terminated & going,
            truncated=self.truncated & going,
            ended=self.ended & going,
        )

    def info_of(self, i: int) -> dict[str, Any]:
        """Return the info of one environment's step."""
        infos = self.info
        # After a reset in the same step, the top level of the info belongs to the reset.
        if self.ended[i] and isinstance(infos.get("final_info"), dict):
            infos = infos["final_info"]
        return info_of(infos, i, len(self.ended))


class VectorStepper(Stepper):
    """Steps one native vector environment in this process.

    A checkpoint of a SyncVectorEnv has one state per environment. Other vector environments that
    can save their state have a single state, which is stored in the record of the first
    environment.

    Args:
        factory: function that makes the vector environment.
        traj_info: function that makes the record of one episode.
        seeds, reset_automatically, index, check: as for `Stepper`.

    Attributes, besides those of `Stepper`:
        native: the vector environment.
        n: number of environments.
        same_step: whether the environment begins the next episode within the step that ends one.
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
        super().__init__(seeds, reset_automatically=reset_automatically, index=index, check=check)
        self.n = len(seeds)
        self._numbers = f"environments {index} to {index + self.n - 1}"
        try:
            self.native = NativeEnv(factory, self.first_seeds, self._numbers)
        except BaseException as error:
            add_note(error, f"in {self._numbers}, while they were made")
            raise
        # Before any error can close it: it may belong to another cage.
        claim_env(self.native.core, self, self._numbers)
        self.spaces = self.native.spaces
        try:
            self.trajs = follow(traj_info, self.n)
            for seed in self._action_seeds:
                self.action_spaces.append(seeded_action_space(self.spaces.action, seed))
            self._check: StackedCheck | None = StackedCheck(
                self.spaces, self.n, self.name, self.name_of
            )
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self.close()
            raise
        self._in_first_episode = np.ones(self.n, bool)
        self.same_step = self.native.mode == SAME_STEP
        # Whether there was no step since a reset by the first seeds, which could be repeated with equal
        # results.
        self._just_seeded = False
        self._seeds_given = False  # whether the caller set seeds for the next reset
        self._prepared_infos: dict[int, dict[str, Any]] = {}  # of the resets in progress
        self._last: Tree = None  # the observation of the last step, unless some were reset since
        # The action for waiting environments, for which the buffer may hold anything.
        # Drawn once from a copy of the space, so that waiting takes no number from `action_spaces`.
        self._idle_action = seeded_action_space(self.spaces.action, 0).sample()

    @property
    def name(self) -> str:
        """Name of all environments together, for messages."""
        return f"{self._numbers} ({self.spaces.name})"

    def set_reset(
        self,
        which: NDArray[np.bool_],
        seeds: Sequence[Any] | None,
        options: dict[str, Any] | None,
    ) -> None:
        """Set seeds and options of the next reset. Raises ValueError if it could not use them."""
        given = [None] * self.n if seeds is None else list(seeds)
        # Now, as an error in the reset itself would end the workers.
        self.native.check_reset(which, given, options, self._numbers)
        super().set_reset(which, seeds, options)
        self._seeds_given = any(given[i] is not None for i in np.flatnonzero(which).tolist())

    def reset(self, mask: NDArray[np.bool_]) -> tuple[NDArray[np.intp], Tree]:
        """Reset the environments of a mask, [n]; return their numbers and observations."""
        which = np.flatnonzero(mask)
        # A frozen environment passes on `reset`, but would return zeros from the next steps.
        if self.native.can_rest:
            self.native.wake_all()
        self._prepared_infos.clear()
        self.native.reset_info = {}
        observation = self._reset_which(which) if len(which) else None
        for i in which.tolist():
            self.seeds[i] = None  # not earlier: a failed reset may be repeated
            self.trajs.begin(i)
            if i in self.prepared:  # it has been used
                self._prepared_infos[i] = self.prepared.pop(i)[1]
        self.needs_reset[which] = False
        waiting = np.flatnonzero(self.needs_reset)
        self.n_waiting = len(waiting)
        if len(waiting) and self.native.can_rest:
            self.native.freeze(waiting)
        self._last = None
        return which, observation

    def _reset_which(self, which: NDArray[np.intp]) -> Tree:
        # The whole list, as environments take seeds by position. The mask keeps those of the
        # others from being used.
        seeds = None if all(self.seeds[i] is None for i in which.tolist()) else self.seeds
        if not self.prepared:
            # Not a partial reset of all: only `reset_all` takes every form of seeds, and works
            # before the first step.
            whole = len(which) == self.n
            return self._reset_all() if whole else self._reset_some(which, self._last, seeds)
        # A reset that was prepared ahead counts as the next one: another would draw a different episode.
        parts = {i: observation for i, (observation, _) in self.prepared.items() if i in which}
        others = np.array([i for i in which.tolist() if i not in parts], np.intp)
        if len(others):
            fresh = self._reset_some(others, self._last, seeds)
            parts.update((i, pick(fresh, k)) for k, i in enumerate(others.tolist()))
        return stacked(self.spaces.observation, [parts[i] for i in which.tolist()])

    def _reset_all(self) -> Tree:
        try:
            if self._seeds_given:
                self.native.remake(self.seeds, self._numbers)
                self._seeds_given = False
            result = self.native.reset_all(self.seeds, self.options)
            if self._check is not None:
                self._check.reset(result)
        except Exception as error:
            if (old := old_reset(error, self._name_in(error))) is not None:
                raise old from error
            self._note(error, self.name, "reset")
            raise
        # Compared, as `load_states` may have put salted seeds in place of the first ones, which
        # `random_steps` would use to repeat this reset.
        self._just_seeded = None not in self.seeds and self.seeds == self.first_seeds
        self.native.reset_info = result[1]
        return result[0]

    def _reset_some(
        self, which: NDArray[np.intp], last: Tree, seeds: Sequence[int | None] | None = None
    ) -> Tree:
        try:
            return self.native.reset_some(which, last, seeds, self.options)
        except Exception as error:
            numbers = ", ".join(str(self.index + i) for i in which.tolist())
            self._note(error, f"environment {numbers} ({self.spaces.name})", "reset")
            raise

    def _name_in(self, error: Exception) -> str:
        i = self.native.index_in(error)
        return self.name if i is None else self.name_of(i)

    def _note(self, error: Exception, names: str, doing: str) -> None:
        """Add a note to an error with the environment, if known, and what it was doing."""
        i = self.native.index_in(error)
        add_note(error, f"in {names if i is None else self.name_of(i)}, during {doing}")

    def step(self, actions: Tree) -> StackedStep:
        """Step all environments. `actions` is overwritten for those that wait."""
        if self.n_waiting:
            # Into a copy: `Rows` reads stacked actions into new memory, so the batch keeps
            # what the agent wrote.
            put(actions, self.needs_reset, self._idle_action)
        # Before the step: one that raises may have moved some of the environments.
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
        # A reference: `NativeEnv.reset_some` copies what it compares, before the
        # environment can overwrite it.
        self._last = observation
        return StackedStep(observation, reward, terminated, truncated, info, ended)

    def record(self, step: StackedStep, actions: Tree, going: NDArray[np.bool_]) -> None:
        """Record the step in the TrajInfo of each environment selected by `going`."""
        which = np.flatnonzero(step.ended & going)
        # Not `step.observation`, which in the mode SameStep already belongs to the next episode.
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
        """Return copies of the final observations of `which`, whose episodes ended in this step.

        Raises:
            ValueError: if the environment reset in the same step and the info lacks the final
                observation.
        """
        if not self.same_step:
            # One copy for all of them.
            return rows_of(pick(step.observation, which), len(which))
        finals = []
        for i in which.tolist():
            final = final_observation(step.info, i)
            if final is None:
                raise ValueError(
                    f"{self.name_of(i)}: was reset in the same step, but its last observation is "
                    f"missing: expected info['final_obs'], got an info with {sorted(step.info)}"
                )
            finals.append(final)
        return finals

    def start_resets(self, which: NDArray[np.intp]) -> None:
        """Start the resets that `end_episodes` will need, if the environment can reset in the background."""
        if self.reset_automatically and not self.same_step:
            self.native.start_reset(which)

    def end_episodes(
        self, which: NDArray[np.intp], step: StackedStep, ended: NDArray[np.bool_]
    ) -> Tree | None:
        """Begin the next episodes of `which`, or let them wait if resets are not automatic.

        ended: [n], flags of all environments, including waiting ones.

        Returns the observations of partial resets, [len(which), ...]; None if there were none.
        """
        # One call steps all, so the check goes on until the slowest of them has
        # ended its first episode.
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
            # They have ended and not begun again, so that the next `reset` must include them. After
            # Ctrl-C too: the cage of this process may still be used.
            self._mark(which)
            raise

    def reset_to_wait(self) -> None:
        """Reset all environments, and let them wait for another reset."""
        which, _ = self.reset(np.ones(len(self.needs_reset), bool))
        self._mark(which)
        if self.native.can_rest:
            self.native.freeze(which)

    def _mark(self, which: NDArray[np.intp]) -> None:
        # None of `which` waits already, or it would be counted twice: `StackedStep.only` has
        # cleared the flags of those that do.
        self.needs_reset[which] = True
        self.n_waiting += len(which)

    def _let_wait(
        self, which: NDArray[np.intp], step: StackedStep, ended: NDArray[np.bool_]
    ) -> None:
        # Where environments cannot rest, those of SameStep and NextStep play on with the idle
        # action, and their results are ignored until `reset`.
        if self.native.can_rest:
            self.native.freeze(which)
            if self.same_step:
                # The next episode has begun in this step. `reset` hands out its first observation,
                # which this copy preserves from the steps in between.
                for i in which.tolist():
                    self.prepared[i] = copied(pick(step.observation, i)), self.reset_info(step, i)
        elif self.native.mode == DISABLED:
            # They are stepped with the others, which this mode allows only after a reset.
            self._reset_some(np.flatnonzero(ended), step.observation)

    # ------------------------------------------------------------------ random steps outside of rows

    def random_steps(self, counts: Sequence[int]) -> tuple[NDArray[np.intp], Tree]:
        """Take `counts[i]` random steps in environment i, continuing into new episodes where necessary.

        The vector environment is stepped as often as the largest count. Environments that can rest do so
        after their own steps; the others start their episodes so that each completes its own count. Returns
        the numbers of the environments that were stepped or reset, and their observations.

        Raises:
            WrongStateError: if a waiting environment has a count above 0.
        """
        # Before the first step, so that a refused call leaves all environments where they were.
        for i in np.flatnonzero(self.needs_reset).tolist():
            if counts[i]:
                raise WrongStateError(f"{self.name_of(i)}: stepped before a reset")
        wanted, most, rests = np.array(counts), max(counts), self.native.can_rest
        # Without a step since the reset, resetting with the same seeds leads to the same observations.
        seeds = self.first_seeds if self._just_seeded else None
        # The step at which each begins; waiting environments never do.
        begins = np.where(self.needs_reset, most + 1, most - wanted)
        # `now`: observations of the last step. `latest`: with those of resting environments from their last
        # own step.
        now: Tree = None
        latest: Tree = None
        try:
            for k in range(most):
                if rests:
                    # Frozen after their own last step, and woken below: the others must
                    # not carry them further.
                    going = wanted > k
                    self.native.freeze(np.flatnonzero(wanted == k))
                else:
                    going = begins <= k
                    # Not before the first step: those that begin with it continue from where they are.
                    if k:
                        self._begin(np.flatnonzero(begins == k), now, seeds)
                now = self._random_step(going)
                latest = now if latest is None else latest
                put(latest, going, pick(now, going))
        finally:
            # After an error too: rows may follow, and a frozen environment would fill them with zeros.
            if rests:
                # Those that rested had reached their counts; those that wait for a reset stay frozen.
                self.native.wake_all()
                self.native.freeze(np.flatnonzero(self.needs_reset))
        which = np.flatnonzero(wanted if rests else ~self.needs_reset)
        if not rests:
            # By now all have begun, and `now` holds their observations.
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
        """Step the environments of `going` with random actions; return a copy of all observations."""
        drawn = [
            space.sample() if goes else self._idle_action
            for space, goes in zip(self.action_spaces, going.tolist(), strict=True)
        ]
        actions = stacked(self.spaces.action, drawn)
        step = self.step(actions)
        # One by one, as the others were not stepped.
        self.record(step, actions, going)
        for i in np.flatnonzero(step.ended & going).tolist():
            self.trajs.end(i)
        # Before the resets, which may write to the same array. The caller also writes to it.
        observation = copied(step.observation)
        which = np.flatnonzero(step.ended)
        # Also those that are not going: they too must be ready for the next action.
        if len(which) and not self.same_step:
            put(observation, which, self._reset_some(which, step.observation))
        return observation

    # ------------------------------------------------------------------ states, attributes, and the end

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `states`, see `Stepper.load_states`."""
        if self.native.single_envs():
            # None stays frozen from before: the loaded states decide which environments wait.
            self.native.wake_for_states()
        super().load_states(states, salt)
        if all(state["env"] is None for state in states):
            # An environment that takes its seeds when made must be made again for the next reset to use them.
            self.native.remake(self.seeds, self._numbers)

    def _env_states(self) -> list[tuple[State | None, str | None]]:
        envs = self.native.single_envs()
        if envs:
            return self._states_of(envs)
        try:
            whole = env_state(self.native.env)
            missing = missing_env_state(self.native.env) if whole is None else None
        except Exception as error:
            add_note(error, f"in {self.name}, during state")
            raise
        if whole is None:
            return [(None, missing)] * self.n
        # Stored once, in the record of the first; the others say where they belong.
        return [
            ({"of": self.n, "environment": i, "all": None if i else whole}, None)
            for i in range(self.n)
        ]

    def _load_env(self, i: int, state: State) -> None:
        saved, envs = state["env"], self.native.single_envs()
        if not envs:
            _check_number(saved, i, self.n)
            # The record of the first environment holds the state of all.
            if i == 0:
                load_env_state(self.native.env, saved["all"])
            return
        if "of" in saved:
            raise ValueError(
                "expected the state of a single environment, got the state of a vector environment "
                f"of {saved['of']}"
            )
        self._load_single(i, envs[i], state)
        if state["needs_reset"]:
            self.native.freeze(np.array([i]))

    def reset_info_of(self, i: int) -> dict[str, Any]:
        """Return the info of environment i's last reset outside of its own steps."""
        if i in self._prepared_infos:
            return self._prepared_infos.pop(i)
        return info_of(self.native.reset_info, i, self.n)

    def reset_info(self, step: StackedStep, i: int) -> dict[str, Any]:
        """Return the info of environment i's automatic reset in this step."""
        if not self.same_step:
            return self.reset_info_of(i)
        info = info_of(step.info, i, self.n)
        return {key: value for key, value in info.items() if key not in ("final_obs", "final_info")}

    def set_each(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment, see `NativeEnv`."""
        self.native.set_each(name, values)

    def apply(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...] | None]
    ) -> list[Any]:
        """Call a function with each selected environment of a SyncVectorEnv. Raises TypeError for others."""
        return [
            None if call is None else function(env, *call)
            for env, call in zip(self.native.envs_to_call(), calls, strict=True)
        ]

    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment, see `NativeEnv`."""
        return self.native.get(name)

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment. Raises AttributeError if there is none."""
        self.native.set(name, value)

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results."""
        return self.native.method(name, args, kwargs)

    def close(self) -> None:
        """Close the environment. Idempotent."""
        self._last = None
        # First, so that the claim does not outlive the cage if `close` raises.
        release_envs(self)
        self.native.close()


def _plain(action: Tree) -> Tree:
    """Convert numpy scalars to Python numbers, as single environments get them."""
    if isinstance(action, dict):
        return {name: _plain(part) for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(map(_plain, action))
    return action.item() if isinstance(action, np.generic) else action


def _check_number(saved: State, i: int, n: int) -> None:
    """Check that a state is that of environment i of n that are saved together. Raises ValueError."""
    if (saved.get("of"), saved.get("environment")) != (n, i):
        found = (
            f"environment {saved['environment']} of {saved['of']}"
            if "of" in saved
            else "a single environment"
        )
        raise ValueError(
            f"expected the state of environment {i} of {n} that are stepped together, got the "
            f"state of {found}; resume with the same number of environments in each process"
        )
