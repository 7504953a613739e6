"""Epsilon-greedy agent with recurrent state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parllel.agents.agent import ALL_ENVS, EnvIndices
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.agents.recurrent_agent import RecurrentAgent
from parllel.torch.agents.recurrent_memory import RecurrentMemory, no_action
from parllel.torch.agents.sequences import state_after, values_of_sequences
from parllel.types import Tree


class RecurrentQAgent(RecurrentAgent, QAgent):
    """Epsilon-greedy agent whose model has recurrent state.

    For each environment the agent remembers the state of the model and the previous action. Both start at
    zero, and sampling and eval mode have separate memories.

    Args:
        model: module that takes `(observation, rnn_state)`, and `prev_action` if it is enabled, for T rows,
            and returns `(values [T, N, n_actions], rnn_state)`. Its method `initial_state(N)` returns the
            state at the start of an episode. See `RecurrentQModel`.
        n_actions: number of actions.
        prev_action: whether the model receives the previous action; actions count from 0 then.
        epsilon, start, seed, device: see `QAgent`.

    Raises:
        ValueError: for the reasons given in `QAgent`, or for `prev_action` with another `start` than 0.
    """

    def __init__(
        self,
        model: nn.Module,
        n_actions: int,
        *,
        prev_action: bool = False,
        epsilon: float | Sequence[float] = 1.0,
        start: int = 0,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, n_actions, epsilon=epsilon, start=start, seed=seed, device=device)
        self._no_action = no_action(0 if prev_action else None, self.action_space, start)
        self._memory = RecurrentMemory(self.device)

    @torch.inference_mode()
    def step(
        self,
        observation: Tree,
        *,
        env_indices: EnvIndices = ALL_ENVS,
        noise: Tensor | None = None,
        **inputs: Tree,
    ) -> tuple[Tensor, None]:
        """Return `(action, None)`, and remember state and action."""
        memory, indices = self._remembered(env_indices, observation)
        values, state = self._recur(observation, buffer_map(lambda x: x[indices], memory), inputs)
        action = self._choose(values[0], env_indices, noise)
        if self.uses_prev_action:
            memory.prev_action[indices] = action
        self._remember(memory, indices, state)
        return action, None

    @torch.inference_mode()
    def value(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, **inputs: Tree
    ) -> Tensor:
        """Return the value of the greedy action [N]. The memory is read but not updated."""
        memory, indices = self._remembered(env_indices, observation)
        values, _ = self._recur(observation, buffer_map(lambda x: x[indices], memory), inputs)
        value: Tensor = values[0].amax(-1)
        return value

    def action_values(self, observation: Tree, **inputs: Tree) -> Tensor:
        """Return the values of sequences, [T, N, n_actions], with gradients for an update.

        observation: [T, N, ...].  inputs: `initial_rnn_state`, leaves [N, ...], the state before row 0;
        `reset`, a numpy array bool [T, N], where the state before a row is that at the start of an episode,
        None for nowhere; `prev_action` [T, N] if the agent uses it; and further inputs of the model.

        Raises:
            ValueError: if the initial state is missing.
        """
        return self.values_of(self.model, observation, **inputs)

    def values_of(self, model: nn.Module, observation: Tree, **inputs: Any) -> Tensor:
        """Return what `action_values` returns, by another model of the same kind: the target network."""
        return values_of_sequences(model, *self._sequences(observation, inputs))

    def state_after(self, model: nn.Module, observation: Tree, **inputs: Any) -> Tree:
        """Return the state of a model after sequences, leaves [N, ...]; arguments as for `action_values`."""
        return state_after(model, *self._sequences(observation, inputs))

    def _sequences(self, observation: Tree, inputs: dict[str, Any]) -> tuple[Any, ...]:
        """Return observation, state, resets and other inputs on the device."""
        if "initial_rnn_state" not in inputs:
            raise ValueError(
                f"{type(self).__name__}.action_values: expected initial_rnn_state, got {sorted(inputs)}; "
                "R2D1 gives it"
            )
        reset = inputs.pop("reset", None)
        if not self._on_cpu:
            observation, inputs = buffer_map(self._to_device, (observation, inputs))
        if reset is None:
            reset = np.zeros(next(buffer_leaves(observation))[1].shape[:2], np.bool_)
        return observation, inputs.pop("initial_rnn_state"), reset, inputs
