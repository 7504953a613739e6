"""The interface between a sampler's handler and whatever decides on actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from parllel.types import State, Tree

# Which columns of the batch an observation belongs to.
EnvIndices: TypeAlias = slice | NDArray[np.intp]
ALL_ENVS = slice(None)


class Agent(ABC):
    """Decide on actions for many environments at once.

    Observations, actions and agent infos are trees whose leaves have one leading dimension per
    environment, `[N, ...]`, in the types of the agent's own framework; the handler converts.
    All recurrent state (what a network remembers, the previous action) is the agent's, one entry per
    environment, kept apart for sampling and for eval mode.
    """

    # Whether `step` remembers anything of an environment from one call to the next.
    recurrent: bool = False

    # The space that actions are drawn from, which is compared with that of the environments; None if it is
    # not known. Of a Box of real numbers the shape counts alone: cages clip what lies outside.
    action_space: Space[Any] | None = None

    @abstractmethod
    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Return `(action, agent_info)` for `observation` [N, ...].

        noise: a row, [N, ...], of what `draw_noise` returned; None lets the agent draw its own.
        """

    def value(self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS) -> Tree:
        """Return the value estimate [N] of `observation`; recurrent state stays as it is."""
        raise NotImplementedError(f"{type(self).__name__} estimates no values")

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tree:
        """Draw all randomness of a batch, leaves [T, B, ...], or None if there is none.

        Because noise belongs to a cell (t, b), actions do not depend on the order or the grouping
        in which a sampler steps its environments.

        seed: draw from a new generator with this seed, and leave the agent's own as it is. Rollout workers
            ask for it, so that the noise of a fragment does not depend on what was drawn before it.
        """
        return None

    def initial_rnn_state(self, env_indices: EnvIndices) -> Tree:
        """Return the recurrent state that the next step starts from, [N, ...], or None.

        Together with the observations of a batch, and the previous actions if the agent looks at them, it
        is all that is needed to compute the states of the batch again.
        """
        return None

    def memory(self) -> State:
        """Return what is remembered of environments in the present mode, for a checkpoint; {} if nothing."""
        if self.recurrent:
            raise NotImplementedError(
                f"{type(self).__name__}.memory(): expected what it remembers, as it is recurrent; override "
                "it, and load_memory"
            )
        return {}

    def load_memory(self, state: State) -> None:
        """Take back what `memory` returned, in the present mode."""

    def reset(self) -> None:
        """Forget the recurrent state of all environments, of the present mode."""

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Forget the recurrent state of some environments, of the present mode."""

    def sample_mode(self) -> None:
        """Explore: actions are drawn."""

    def train_mode(self) -> None:
        """Prepare the models for an update."""

    def eval_mode(self) -> None:
        """Exploit: actions are the best known. Leaves the sampling state untouched."""

    def models(self) -> dict[str, Any]:
        """Return by name all models that must be shared with, or copied to, other processes.

        They are entries of `state()` too, of arrays and numbers. An agent that learns nothing returns {}.

        Raises:
            NotImplementedError: unless a subclass overrides it; what is learned cannot be guessed.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.models(): expected the names of what it learns in its state(), for "
            "other processes; return {} if it learns nothing"
        )

    def state(self) -> State:
        """Return what a checkpoint needs to continue: parameters, recurrent and random state."""
        return {}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""

    def close(self) -> None:
        """Release files, processes and shared memory; may be called twice."""
