"""Epsilon-greedy agent with recurrent state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from parllel.agents.agent import ALL_ENVS, EnvIndices
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.agents.recurrent_memory import RecurrentMemory, first_memory, no_action
from parllel.torch.agents.sequences import state_after, values_of_sequences
from parllel.types import State, Tree

RecurrentT = TypeVar("RecurrentT", bound="RecurrentQAgent")


class RecurrentQAgent(QAgent):
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

    recurrent = True

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

    @property
    def uses_prev_action(self) -> bool:
        """Whether the model receives the previous action."""
        return self._no_action is not None

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
        for name in state._fields:
            memory.rnn_state._get(name)[indices] = state._get(name)
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

    def initial_rnn_state(self, env_indices: EnvIndices) -> Tree:
        """Return the state before the next step, leaves [N, ...]."""
        memory, indices = self._remembered(env_indices)
        return buffer_map(lambda leaf: leaf[indices].clone(), memory.rnn_state)

    def reset(self) -> None:
        """Clear the memory of all environments in the current mode."""
        self._memory.clear(self._evaluating)

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Clear the memory of some environments in the current mode."""
        self._memory.forget(self._evaluating, env_indices, self.initial_memory)

    def copy_to_device(self: RecurrentT, device: torch.device | str) -> RecurrentT:
        """Like `QAgent.copy_to_device`. The memory moves to the device of the copy."""
        twin = super().copy_to_device(device)
        self._memory.move(twin.device)
        return twin

    def state(self) -> State:
        """Return parameters, epsilon, the generator's state, and the memory of sampling."""
        # Not the memory of eval mode: an evaluation begins with a reset.
        return {**super().state(), **self._memory.state(False)}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        super().load_state(state)
        self._memory.clear()
        self._memory.load_state(False, state, self.initial_memory)

    def memory(self) -> State:
        """Return the memory of the current mode, which is the state and the previous action."""
        return self._memory.state(self._evaluating)

    def load_memory(self, state: State) -> None:
        """Restore a memory returned by `memory`."""
        self._memory.load_state(self._evaluating, state, self.initial_memory)

    def _recur(self, observation: Tree, before: NamedTuple, inputs: dict[str, Tree]) -> Any:
        """Run the model for one row; return its values [1, N, n_actions] and the state after it."""
        if self.uses_prev_action:
            inputs = {**inputs, "prev_action": before.prev_action}
        if not self._on_cpu:
            observation, inputs = buffer_map(self._to_device, (observation, inputs))
        observation, inputs = buffer_map(lambda leaf: leaf.unsqueeze(0), (observation, inputs))
        return self.model(observation, before.rnn_state, **inputs)

    def _remembered(
        self, env_indices: EnvIndices, observation: Tree = None
    ) -> tuple[NamedTuple, slice | Tensor]:
        return self._memory.at(self._evaluating, env_indices, self.initial_memory, observation)

    def initial_memory(self, N: int) -> NamedTuple:
        """Return the memory at the start of N episodes: `rnn_state`, and `prev_action` if it is used."""
        state = self.model.initial_state(N)  # type: ignore[operator]
        return first_memory(state, self._no_action, N)
