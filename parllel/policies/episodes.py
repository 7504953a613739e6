"""Whole episodes played with a policy, one per seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.cages.spaces import Spaces
from parllel.cages.stepping.env_stepper import EnvStepper
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.cages.stepping.trajectories import TrajInfoFactory
from parllel.cages.traj_info import TrajInfo
from parllel.errors import EpisodeTooLongError, add_note
from parllel.policies.action_adapter import ActionAdapter
from parllel.policies.policy import Policy, check_policy
from parllel.policies.space_trees import one_of, stacked
from parllel.seeding import Seeds
from parllel.types import Tree

_MAX_NAMED = 8  # seeds listed when a policy fails on several environments


@dataclass(frozen=True)
class Episode:
    """A completed episode.

    Attributes:
        seed: seed of the environment.
        traj: statistics of the episode.
        terminated, truncated: how it ended.
        actions: [length, ...], the actions passed to the environment; None without `keep_actions`.
    """

    seed: int
    traj: TrajInfo
    terminated: bool
    truncated: bool
    actions: Tree = None


@dataclass
class _RunningEpisode:
    """An episode in progress: its index among the results, and the observation to act on next."""

    place: int
    seed: int
    observation: Tree
    length: int = 0
    actions: list[Tree] = field(default_factory=list)


def play_episodes(
    policy: Policy,
    make_env: EnvFactory,
    seeds: Sequence[int],
    *,
    n_envs: int = 16,
    first_env: int = 0,
    traj_info: TrajInfoFactory = TrajInfo,
    max_steps: int = 1_000_000,
    watch: Callable[[int, gym.Env[Any, Any]], None] | None = None,
    keep_actions: bool = False,
) -> list[Episode]:
    """Play one episode per seed and return them in the order of the seeds.

    An environment is reset with the seed itself, and the policy with a seed derived from it. So an episode
    depends only on its seed, not on `n_envs`, provided that resets leave no trace of earlier episodes.

    Args:
        policy: policy that is called once per step for all environments.
        make_env: function that makes an environment; it is called at most `n_envs` times.
        seeds: ints of at least 0.
        n_envs: environments stepped side by side, in this process.
        first_env: the policy's number of the first environment.
        traj_info: function that makes the record of one episode.
        max_steps: largest number of steps of an episode.
        watch: called with the seed and the environment before each step, when the environment shows what the
            policy is about to act on. An exception from it ends the call.
        keep_actions: whether to store the actions in the episodes.

    Raises:
        ValueError: for invalid arguments, or a policy for other spaces.
        TypeError: if `policy` is not a Policy; `policy_of` makes one from a specification.
        EpisodeTooLongError: after `max_steps` steps of an episode.
        Exception: raised by an environment, the policy or `watch`, with a note that names the seed.
    """
    _check_arguments(policy, seeds, n_envs, max_steps)
    if not len(seeds):
        return []
    n = min(n_envs, len(seeds))
    with ExitStack() as stack:
        stepper = _make_stepper(make_env, n, traj_info, stack)
        _check_spaces(policy, stepper.spaces)
        table = _Table(policy, stepper, seeds, first_env, max_steps, keep_actions)
        table.begin(range(n))
        while table.playing:
            if watch is not None:
                table.watch(watch)
            table.begin(table.step())
    return table.episodes


class _Table:
    """Episodes played side by side, each in its own environment."""

    def __init__(
        self,
        policy: Policy,
        stepper: EnvStepper,
        seeds: Sequence[int],
        first_env: int,
        max_steps: int,
        keep_actions: bool,
    ) -> None:
        self._policy, self._stepper, self._first = policy, stepper, first_env
        self._seeds = [int(seed) for seed in seeds]
        self._max_steps, self._keep = max_steps, keep_actions
        self._read = ActionAdapter(stepper.spaces.action)
        self._next = 0  # place of the episode to begin next
        self._found: dict[int, Episode] = {}
        self.playing: dict[int, _RunningEpisode] = {}

    @property
    def episodes(self) -> list[Episode]:
        """The completed episodes by index."""
        return [self._found[place] for place in sorted(self._found)]

    def begin(self, free: Sequence[int]) -> None:
        """Begin the next episodes in free environments, until none are left."""
        begun = []
        for i in free:
            if self._next == len(self._seeds):
                break
            place, self._next = self._next, self._next + 1
            seed = self._seeds[place]
            with _named([seed]):
                self._stepper.seeds[i] = seed
                observation, _ = self._stepper.reset_one(i)
            self.playing[i] = _RunningEpisode(place, seed, observation)
            begun.append(i)
        if begun:
            seeds = [self.playing[i].seed for i in begun]
            with _named(seeds):
                # Derived, because the environment draws from the seed itself.
                drawn = [Seeds(seed).integer("policy") for seed in seeds]
                self._policy.reset([self._first + i for i in begun], drawn)

    def watch(self, watch: Callable[[int, gym.Env[Any, Any]], None]) -> None:
        """Call `watch` for all environments."""
        for i, one in self.playing.items():
            with _named([one.seed]):
                watch(one.seed, self._stepper.envs[i])

    def step(self) -> list[int]:
        """Step all environments with the policy's actions. Return those whose episodes ended."""
        # Sorted, so that the policy's rows do not depend on which episodes ended first.
        numbers = sorted(self.playing)
        with _named([self.playing[i].seed for i in numbers]):
            seen = stacked(
                [self.playing[i].observation for i in numbers], self._stepper.spaces.observation
            )
            actions = self._policy.act(seen, [self._first + i for i in numbers])
        ended = []
        for row, i in enumerate(numbers):
            with _named([self.playing[i].seed]):
                # Read by the code of batches: clipped, and a numpy scalar if Discrete.
                if self._step_one(i, self._read.of(one_of(actions, row))):
                    ended.append(i)
        return ended

    def _step_one(self, i: int, action: Any) -> bool:
        """Step an environment; return whether its episode ended."""
        # Before the step, so that an episode of exactly `max_steps` steps is allowed.
        one = self.playing[i]
        if one.length == self._max_steps:
            raise EpisodeTooLongError(
                f"the episode with seed {one.seed} did not end within {self._max_steps} steps. "
                "Raise max_steps, or use an environment with a time limit"
            )
        if self._keep:
            one.actions.append(action)
        step = self._stepper.step_one(i, action)
        one.observation, one.length = step.observation, one.length + 1
        if not (step.terminated or step.truncated):
            return False
        (traj,) = self._stepper.trajs.take()
        actions = stacked(one.actions, self._stepper.spaces.action) if self._keep else None
        del self.playing[i]
        self._found[one.place] = Episode(one.seed, traj, step.terminated, step.truncated, actions)
        return True


def _make_stepper(
    make_env: EnvFactory, n: int, traj_info: TrajInfoFactory, stack: ExitStack
) -> EnvStepper:
    """Make n environments; `stack` closes them."""
    stepper = EnvStepper(
        [make_env] * n,
        # None: each episode is seeded separately.
        [None] * n,
        traj_info,
        reset_automatically=False,
        index=0,
        check="first_episode",
    )
    stack.callback(stepper.close)
    return stepper


@contextmanager
def _named(seeds: Sequence[int]) -> Iterator[None]:
    """Add a note with the episodes' seeds to errors raised within."""
    try:
        yield
    except Exception as error:
        named = ", ".join(str(seed) for seed in seeds[:_MAX_NAMED])
        more = f" and {len(seeds) - _MAX_NAMED} more" if len(seeds) > _MAX_NAMED else ""
        add_note(error, f"in the episode{'s' * (len(seeds) > 1)} of seed {named}{more}")
        raise


def _check_arguments(policy: Policy, seeds: Sequence[int], n_envs: int, max_steps: int) -> None:
    check_policy(policy, "policy")
    if isinstance(seeds, (int, np.integer)):
        raise ValueError(f"seeds: expected ints of at least 0, got {seeds!r}")
    for name, value in (("n_envs", n_envs), ("max_steps", max_steps)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name}: expected an int of at least 1, got {value!r}")
    for seed in seeds:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ValueError(f"seeds: expected ints of at least 0, got {seed!r}")


def _check_spaces(policy: Policy, spaces: Spaces) -> None:
    """Raise ValueError for a policy with other spaces."""
    for kind in ("observation", "action"):
        expected, actual = getattr(spaces, kind), getattr(policy, f"{kind}_space")
        if actual is not None and actual != expected:
            raise ValueError(
                f"policy: expected a policy for the {kind} space {expected} of {spaces.name}, got "
                f"a {type(policy).__name__} for {actual}"
            )
