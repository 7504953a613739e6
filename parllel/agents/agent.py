"""The agent interface, through which handlers obtain actions and values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from parllel.types import State, Tree

# The columns of the batch that observations belong to.
EnvIndices: TypeAlias = slice | NDArray[np.intp]
ALL_ENVS = slice(None)


class Agent(ABC):
    """Choose actions for many environments at once.

    Observations, actions and agent infos are trees whose leaves have a leading dimension over
    environments, `[N, ...]`, in the types of the agent's framework; the handler converts them. The
    agent owns all recurrent state (network memory, previous actions), with one entry per
    environment, kept separately for sampling and for evaluation.
    """

    # Whether `step` keeps state of an environment between calls.
    recurrent: bool = False

    # Entries of `state()` that are learned, but not needed to act, such as critics, and so not in `models()`.
    # Several learners keep them equal.
    also_learned: tuple[str, ...] = ()

    # The space of the actions, which is checked against that of the environments; None if unknown.
    # For a Box of real numbers only the shape is checked, because cages clip.
    action_space: Space[Any] | None = None

    def __repr__(self) -> str:
        try:
            models = [one for one in self.models().values() if hasattr(one, "parameters")]
        except NotImplementedError:
            models = []
        found = [type(model).__name__ for model in models]
        if models:
            size = sum(p.numel() for model in models for p in model.parameters())
            found += [f"{size:,} parameters", str(getattr(self, "device", "cpu"))]
        return f"{type(self).__name__}({', '.join(found)})"

    @abstractmethod
    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Return `(action, agent_info)` for `observation` [N, ...].

        noise: a row [N, ...] of the noise from `draw_noise`; None lets the agent draw its own.
        """

    def value(self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS) -> Tree:
        """Return the value estimates [N] of `observation`. Does not change recurrent state."""
        raise NotImplementedError(f"{type(self).__name__} does not estimate values")

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tree:
        """Draw all random numbers of a batch, leaves [T, B, ...], or None if the agent uses none.

        Because noise belongs to a cell (t, b), actions do not depend on the order or grouping in
        which a sampler steps its environments.

        seed: seed of a new generator to draw from instead of the agent's own. Rollout workers pass
            it so that the noise of a fragment does not depend on earlier draws.
        """
        return None

    def initial_rnn_state(self, env_indices: EnvIndices) -> Tree:
        """Return the recurrent state before the next step, [N, ...], or None.

        The recurrent states of a whole batch can be recomputed from this state, the batch's
        observations and, if the agent uses them, the previous actions.
        """
        return None

    def memory(self) -> State:
        """Return the recurrent state of the current mode for a checkpoint; {} if there is none."""
        if self.recurrent:
            raise NotImplementedError(
                f"{type(self).__name__}.memory(): expected the recurrent state of a recurrent agent; "
                "override memory and load_memory"
            )
        return {}

    def load_memory(self, state: State) -> None:
        """Restore a state returned by `memory`, in the current mode."""

    def reset(self) -> None:
        """Reset the recurrent state of all environments in the current mode."""

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Reset the recurrent state of some environments in the current mode."""

    def sample_mode(self) -> None:
        """Switch to sampling, where actions are drawn at random."""

    def train_mode(self) -> None:
        """Switch the models to training."""

    def eval_mode(self) -> None:
        """Switch to evaluation, where the agent takes its best known actions. The sampling state is kept."""

    def models(self) -> dict[str, Any]:
        """Return the models to share with or copy to other processes, keyed by name.

        Each model is also an entry of `state()`, made of arrays and numbers. Agents that learn
        nothing return {}.

        Raises:
            NotImplementedError: if not overridden, since an agent's learned parts cannot be
                guessed.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.models(): expected the names of what it learns in its state(), for "
            "other processes; return {} if it learns nothing"
        )

    def state(self) -> State:
        """Return the state for a checkpoint: parameters, recurrent and random state."""
        return {}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""

    def close(self) -> None:
        """Release files, processes and shared memory. Idempotent."""
