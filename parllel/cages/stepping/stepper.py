"""Base class for the environments of one process, stepped one by one or all by one call.

    RowEnvironments  -->  Stepper: EnvStepper, a list of environments
                                   VectorStepper, a native vector environment

A checkpoint between two rows contains, for each environment:

    the environment      its state and the generators of environment and action space, if it can save them
    the cage's part      the seed of the next reset, whether one is due or prepared, the episode in progress

Without the cage's part an environment would be in the same state, but continue differently.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.cages.spaces import Spaces
from parllel.cages.stepping.make_envs import words_of
from parllel.cages.stepping.trajectories import Trajectories
from parllel.envs.states.env_state import env_state, load_env_state, missing_env_state
from parllel.envs.states.random_state import load_space_state, space_state
from parllel.errors import add_note
from parllel.types import State, Tree

CHECKS = ("first_episode", "first_step", "always")


class Stepper(ABC):
    """Base class that manages the seeds, episodes and states of environments. Subclasses step them.

    Args:
        seeds: for each environment, a SeedSequence or an int that seeds its generator and its
            action space.
        reset_automatically: reset at the end of an episode within the same step; otherwise an ended
            environment is not stepped until the next reset.
        index: number of the first environment, for messages.
        check: when to check returned values: in the "first_step" or the "first_episode" of each
            environment, or "always".

    Attributes:
        index, reset_automatically: the arguments of these names.
        spaces: the spaces of each environment.
        action_spaces: copies of the action spaces, with separate generators.
        trajs: episodes of the environments.
        needs_reset: [n] bool. The array object never changes.
        n_waiting: number of environments that need a reset.
        first_seeds: seed of each environment, or None.
        seeds: seed of each environment's next reset; None to continue its generator.
        options: options of the reset in progress; None for none.
        prepared: observation and info of each environment that was reset ahead of time.

    Raises:
        ValueError: for an unknown `check`.
    """

    spaces: Spaces
    trajs: Trajectories

    def __init__(
        self, seeds: Sequence[Any], *, reset_automatically: bool, index: int, check: str
    ) -> None:
        # Checked before any environment is made, which may be slow or start programs.
        if check not in CHECKS:
            raise ValueError(f"check: expected one of {CHECKS}, got {check!r}")
        self._always_check = check == "always"
        self._check_once = check == "first_step"
        self.index = index
        self.reset_automatically = reset_automatically
        self.action_spaces: list[gym.Space[Any]] = []
        # Kept for environments that cannot save their state: a resumed run derives new seeds from these.
        self.first_seeds: list[int | None] = []
        self._action_seeds: list[int | None] = []
        for i, seed in enumerate(seeds, index):
            try:
                first, second = words_of(seed)
            except Exception as error:
                add_note(error, f"in environment {i}, while it was made")
                raise
            self.first_seeds.append(first)
            self._action_seeds.append(second)
        self.seeds = list(self.first_seeds)
        self.needs_reset: NDArray[np.bool_] = np.ones(len(seeds), bool)
        self.n_waiting = len(seeds)  # kept as a count, as every row reads it
        self.options: dict[str, Any] | None = None
        # In private memory, as the row of the next reset is not known yet.
        self.prepared: dict[int, tuple[Tree, dict[str, Any]]] = {}

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the environments, for messages."""

    def name_of(self, i: int) -> str:
        """Return the name of environment i, for messages."""
        return f"environment {self.index + i} ({self.spaces.name})"

    def prepare_resets(self) -> None:
        """Reset ended environments ahead of time. The next reset returns the stored results.

        Does nothing where environments cannot be reset one by one.
        """

    def set_reset(
        self,
        which: NDArray[np.bool_],
        seeds: Sequence[Any] | None,
        options: dict[str, Any] | None,
    ) -> None:
        """Set the seeds and options of the next reset, for the environments of `which`, [n]."""
        self.options = options
        for i in np.flatnonzero(which).tolist():
            seed = None if seeds is None else words_of(seeds[i])[0]
            if seed is not None:
                self.seeds[i] = seed
            # A reset that was prepared ahead knew neither. Empty options, which a mask may leave, are none.
            if seed is not None or options:
                self.prepared.pop(i, None)

    @contextmanager
    def named(self, i: int, doing: str) -> Iterator[None]:
        """Add a note with the environment and what it was doing to errors raised in the context."""
        try:
            yield
        except Exception as error:
            add_note(error, f"in {self.name_of(i)}, during {doing}")
            raise

    # ------------------------------------------------------------------ states

    def states(self) -> list[State]:
        """Return the state of each environment for a checkpoint, between two rows.

        If an environment cannot save its state, `env` is None and `missing` names the class that
        has no state.
        """
        states = []
        for i, (saved, missing) in enumerate(self._env_states()):
            # A user's TrajInfo may hold values that cannot be saved; the error names the environment.
            with self.named(i, "state"):
                episode = self.trajs.state(i)
            prepared = self.prepared.get(i)
            states.append(
                {
                    "env": saved,
                    "missing": missing,
                    # Without automatic resets an environment may be at the end of an episode, a state that
                    # the other kind of cage never has.
                    "waits": not self.reset_automatically,
                    # None after the first reset: using the seed again would repeat the first episode.
                    "seed": self.seeds[i],
                    "needs_reset": bool(self.needs_reset[i]),
                    # The observation of a prepared reset, which is in no row yet.
                    "prepared": None if prepared is None else [prepared[0]],
                    "episode": episode,
                    "action_space": space_state(self.action_spaces[i]),
                }
            )
        return states

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Restore states returned by `states` into environments made in the same way.

        An environment without a saved state needs a reset afterwards. Its seed is derived from its
        own seed and `salt`, so that it does not repeat its first episodes.

        Raises:
            ValueError: if a state belongs to other environments or TrajInfos.
        """
        # Prepared resets belong to the episodes given up here, not to the loaded ones.
        self.prepared.clear()
        # If one is refused, those before it have been loaded, so the environments are at different
        # points of the run.
        try:
            for i, state in enumerate(states):
                with self.named(i, "load_state"):
                    self._load_state(i, state, salt)
        finally:
            # Recounted, even if one was refused: `_load_state` sets the flags without updating the counter.
            self.n_waiting = int(np.count_nonzero(self.needs_reset))

    def _load_state(self, i: int, state: State, salt: int) -> None:
        self.trajs.begin(i)
        # Also for environments without a state, so that random actions continue the same sequence.
        if state["action_space"] is not None:
            load_space_state(self.action_spaces[i], state["action_space"])
        if state["env"] is None:
            # From the first seed, as the seed of the next reset is usually None.
            self.seeds[i] = _salted(self.first_seeds[i], salt)
            self.needs_reset[i] = True
            return
        kinds, waits = ("resets by itself", "waits to be reset"), not self.reset_automatically
        if bool(state["waits"]) != waits:
            raise ValueError(
                f"expected the state of an environment that {kinds[waits]}, got the state of one "
                f"that {kinds[not waits]}"
            )
        self._load_env(i, state)
        self.seeds[i] = state["seed"]
        self.needs_reset[i] = state["needs_reset"]
        self.trajs.load_state(i, state["episode"])

    def _states_of(self, envs: Sequence[Any]) -> list[tuple[State | None, str | None]]:
        """Return the result of `_env_states` for environments that are stepped one by one."""
        states = []
        for i, env in enumerate(envs):
            with self.named(i, "state"):
                saved = env_state(env)
                states.append((saved, missing_env_state(env) if saved is None else None))
        return states

    def _load_single(self, i: int, env: Any, state: State) -> None:
        """Restore the state of a single environment."""
        load_env_state(env, state["env"])
        if state["prepared"] is not None:
            self.prepared[i] = state["prepared"][0], {}  # without info: rows store none for a reset

    @abstractmethod
    def _env_states(self) -> list[tuple[State | None, str | None]]:
        """Return the state of each environment and None, or None and the name of the class without one."""

    @abstractmethod
    def _load_env(self, i: int, state: State) -> None:
        """Restore environment i and its prepared reset from one of the records of `states`."""

    # ------------------------------------------------------------------ attributes, and the end

    @abstractmethod
    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment."""

    @abstractmethod
    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment. Raises AttributeError if there is none."""

    @abstractmethod
    def set_each(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute to a separate value in each environment, or raise AttributeError."""

    @abstractmethod
    def apply(
        self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...] | None]
    ) -> list[Any]:
        """Call `function(env, *calls[i])` for each environment whose entry is not None.

        Raises:
            TypeError: if the environments cannot be reached one by one.
        """

    @abstractmethod
    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results."""

    @abstractmethod
    def close(self) -> None:
        """Close all environments even if some fail, then raise the first error."""


def set_env_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute on the wrapper or environment that has it.

    Raises:
        AttributeError: if none has it, since the name may be misspelled. The message lists similar
            names.
    """
    layer, innermost = env, env
    while layer is not None:
        inner, innermost = getattr(layer, "env", None), layer
        # Not hasattr: a wrapper may forward the attributes of its environment.
        own = name in getattr(layer, "__dict__", ()) or hasattr(type(layer), name)
        if own or (inner is None and hasattr(layer, name)):
            # On the layer that has it: on an outer one it would hide the value that the environment reads.
            setattr(layer, name, value)
            return
        layer = inner
    # Similar names are searched in the innermost environment, as wrappers repeat or hide names. It may lie
    # beyond `unwrapped`, inside an adapter that is not a gymnasium wrapper.
    names = {*dir(getattr(env, "unwrapped", env)), *dir(innermost)}
    near = difflib.get_close_matches(name, sorted(n for n in names if not n.startswith("_")))
    # Refused: a misspelled name would otherwise be set on a wrapper, where nothing reads it.
    raise AttributeError(
        f"neither the cage nor its environment {env!r} has an attribute {name!r} to set (similar "
        f"names: {near}); define it in the environment's __init__ first"
    )


def _salted(seed: int | None, salt: int) -> int | None:
    """Return a different seed for each `salt`; None for None."""
    return None if seed is None else int(np.random.SeedSequence([seed, salt]).generate_state(1)[0])
