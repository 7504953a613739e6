"""The environments of one process, whether they are stepped one by one or all by one call.

    RowEnvironments  -->  Stepper: EnvStepper, a list of environments
                                   VectorStepper, a native vector environment

A checkpoint keeps of each environment, between two rows:

    the environment      its state, and the generators of environment and action space, where it offers them
    what the cage adds   the seed of the next reset, whether one is due or prepared, the episode in progress

Without the second part an environment would be where it was, and still play on differently.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
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


class Stepper(ABC):
    """Seed environments, follow their episodes, save and restore their states; how to step is a subclass's.

    Args:
        seeds: for each environment a seed sequence or int for its generator and its action space.
        reset_automatically: reset at the end of an episode within the same step; otherwise an ended
            environment stays still until the next reset.
        index: number of the first one, for messages.
        check: test what environments return: "first_episode" of each, or "always".

    Attributes:
        index, reset_automatically: the arguments of these names.
        spaces: of each environment.
        action_spaces: copies with generators of their own.
        trajs: their episodes.
        needs_reset: [n] bool, always the same array.
        n_waiting: how many need a reset.
        first_seeds: of each environment, None where it had none.
        seeds: of each environment's next reset, None where its generator goes on.
        prepared: of each environment that was reset ahead of time its observation and info.

    Raises:
        ValueError: for an unknown `check`.
    """

    spaces: Spaces
    trajs: Trajectories

    def __init__(
        self, seeds: Sequence[Any], *, reset_automatically: bool, index: int, check: str
    ) -> None:
        # Before any environment is made, which may take long or start programs.
        if check not in ("first_episode", "always"):
            raise ValueError(f"check: expected 'first_episode' or 'always', got {check!r}")
        self._always_check = check == "always"
        self.index = index
        self.reset_automatically = reset_automatically
        self.action_spaces: list[gym.Space[Any]] = []
        # Kept for environments without a state: a resumed run derives other seeds from these.
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
        self.n_waiting = len(seeds)  # counted, as every row asks for it
        # In private memory, as it is not known yet which row the next reset is written to.
        self.prepared: dict[int, tuple[Tree, dict[str, Any]]] = {}

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call them."""

    def name_of(self, i: int) -> str:
        """Return what messages call the i-th environment."""
        return f"environment {self.index + i} ({self.spaces.name})"

    def prepare_resets(self) -> None:
        """Reset those that have ended, into private memory that the next reset hands out.

        Does nothing where environments cannot be reset one by one.
        """

    @contextmanager
    def named(self, i: int, doing: str) -> Iterator[None]:
        """Add a note to errors raised within: which environment it was, and what it was doing."""
        try:
            yield
        except Exception as error:
            add_note(error, f"in {self.name_of(i)}, during {doing}")
            raise

    # ------------------------------------------------------------------ states

    def states(self) -> list[State]:
        """Return what a checkpoint keeps of each environment, between two rows.

        `missing` names what does not offer its state, `env` is None then.
        """
        states = []
        for i, (saved, missing) in enumerate(self._env_states()):
            # A user's TrajInfo may hold what no file can, and the error should say which one.
            with self.named(i, "state"):
                episode = self.trajs.state(i)
            prepared = self.prepared.get(i)
            states.append(
                {
                    "env": saved,
                    "missing": missing,
                    # An environment of a cage that waits may stand at the end of an episode, where others are
                    # never left.
                    "waits": not self.reset_automatically,
                    # None after the first reset: a seed that was used again would repeat the first episode.
                    "seed": self.seeds[i],
                    "needs_reset": bool(self.needs_reset[i]),
                    # Of a reset ahead of time the observation, which is in no row yet.
                    "prepared": None if prepared is None else [prepared[0]],
                    "episode": episode,
                    "action_space": space_state(self.action_spaces[i]),
                }
            )
        return states

    def load_states(self, states: Sequence[State], salt: int) -> None:
        """Restore what `states` returned, into environments that were made alike.

        Where there is no state of an environment, it needs a reset afterwards, by a seed of its own that
        depends on `salt`, so that it does not play its first episodes again.

        Raises:
            ValueError: if it belongs to other environments, or other TrajInfos.
        """
        # These belong to episodes that are given up here, and would be taken for the loaded ones'.
        self.prepared.clear()
        for i, state in enumerate(states):
            with self.named(i, "load_state"):
                self._load_state(i, state, salt)
        # Counted once at the end: the flags were set here without the counter that resets keep in step.
        self.n_waiting = int(np.count_nonzero(self.needs_reset))

    def _load_state(self, i: int, state: State, salt: int) -> None:
        self.trajs.begin(i)
        # Also where the environment itself has no state: random actions then go on as they would have.
        if state["action_space"] is not None:
            load_space_state(self.action_spaces[i], state["action_space"])
        if state["env"] is None:
            # From the first seed, as that of the next reset is usually None.
            self.seeds[i] = _salted(self.first_seeds[i], salt)
            self.needs_reset[i] = True
            return
        kinds, waits = ("resets by itself", "waits to be reset"), not self.reset_automatically
        if bool(state["waits"]) != waits:
            raise ValueError(
                f"expected the state of an environment that {kinds[waits]}, got that of one that "
                f"{kinds[not waits]}"
            )
        self._load_env(i, state)
        self.seeds[i] = state["seed"]
        self.needs_reset[i] = state["needs_reset"]
        self.trajs.load_state(i, state["episode"])

    def _states_of(self, envs: Sequence[Any]) -> list[tuple[State | None, str | None]]:
        """Return of environments that are stepped one by one what `_env_states` does."""
        states = []
        for i, env in enumerate(envs):
            with self.named(i, "state"):
                saved = env_state(env)
                states.append((saved, missing_env_state(env) if saved is None else None))
        return states

    def _load_single(self, i: int, env: Any, state: State) -> None:
        """Restore the state of an environment that is stepped by itself."""
        load_env_state(env, state["env"])
        if state["prepared"] is not None:
            self.prepared[i] = state["prepared"][0], {}  # no info: rows store none of a reset

    @abstractmethod
    def _env_states(self) -> list[tuple[State | None, str | None]]:
        """Return the state of each environment, and if it offers none, the name of what does not."""

    @abstractmethod
    def _load_env(self, i: int, state: State) -> None:
        """Restore the i-th environment, and its reset ahead of time; `state` is one of `states`."""

    # ------------------------------------------------------------------ attributes, and the end

    @abstractmethod
    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment."""

    @abstractmethod
    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment; AttributeError where it is not found."""

    @abstractmethod
    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results."""

    @abstractmethod
    def close(self) -> None:
        """Close all environments, each whatever the others do; raises the first error at the end."""


def set_env_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute where it is found among the wrappers.

    Raises:
        AttributeError: if it is not found, as it may be misspelled; the message lists similar names.
    """
    layer, innermost = env, env
    while layer is not None:
        inner, innermost = getattr(layer, "env", None), layer
        # A wrapper may pass on the attributes of what it wraps, so it is not asked with hasattr.
        own = name in getattr(layer, "__dict__", ()) or hasattr(type(layer), name)
        if own or (inner is None and hasattr(layer, name)):
            # On the layer that has it: set on an outer one, it would hide the value that the environment
            # reads.
            setattr(layer, name, value)
            return
        layer = inner
    # Near names are looked for among those of the innermost environment: wrappers repeat or hide them.
    # It may be beyond `unwrapped`, within an environment that is no wrapper of gymnasium's.
    names = {*dir(getattr(env, "unwrapped", env)), *dir(innermost)}
    near = difflib.get_close_matches(name, sorted(n for n in names if not n.startswith("_")))
    # Refused, as a misspelled name would otherwise be set on a wrapper where nothing ever reads it.
    raise AttributeError(
        f"neither the cage nor its environment {env!r} has an attribute {name!r} to set; near names: "
        f"{near}; define it in the environment's __init__ first"
    )


def _salted(seed: int | None, salt: int) -> int | None:
    """Return another seed for each `salt`; a missing one stays so."""
    return None if seed is None else int(np.random.SeedSequence([seed, salt]).generate_state(1)[0])
