"""What agents with recurrent state share."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from parllel.agents.agent import Agent, EnvIndices
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_map
from parllel.torch.agents.recurrent_memory import RecurrentMemory, first_memory
from parllel.types import State, Tree

AgentT = TypeVar("AgentT", bound="RecurrentAgent")


class RecurrentAgent(Agent):
    """Base class, before another agent's, of agents that remember a state and their last action.

    The subclass sets `_no_action` and `_memory`; the other agent has the model and the device.
    """

    recurrent = True

    model: nn.Module
    device: torch.device
    _no_action: Any  # of `no_action`; None if the model does not receive the previous action
    _memory: RecurrentMemory
    _evaluating: bool
    _on_cpu: bool
    _to_device: Any

    @property
    def uses_prev_action(self) -> bool:
        """Whether the model receives the previous action."""
        return self._no_action is not None

    def initial_rnn_state(self, env_indices: EnvIndices) -> Tree:
        """Return the state before the next step, leaves [N, ...]."""
        memory, indices = self._remembered(env_indices)
        return buffer_map(lambda leaf: leaf[indices].clone(), memory.rnn_state)

    def initial_memory(self, N: int) -> NamedTuple:
        """Return the memory at the start of N episodes: `rnn_state`, and `prev_action` if it is used."""
        state = self.model.initial_state(N)  # type: ignore[operator]
        return first_memory(state, self._no_action, N)

    def reset(self) -> None:
        """Clear the memory of all environments in the current mode."""
        self._memory.clear(self._evaluating)

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Clear the memory of some environments in the current mode."""
        self._memory.forget(self._evaluating, env_indices, self.initial_memory)

    def copy_to_device(self: AgentT, device: torch.device | str) -> AgentT:
        """Like `copy_to_device` of the agent without memory. The memory moves to the device of the copy."""
        # Both hold the same memory: whichever agent loads a state, the sampling one uses it.
        twin: AgentT = super().copy_to_device(device)  # type: ignore[misc]
        self._memory.move(twin.device)
        return twin

    def state(self) -> State:
        """Return the state of the agent without memory, and the memory of sampling."""
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
        """Run the model for one row; return its output [1, N, ...] and the state after it."""
        if self.uses_prev_action:
            inputs = {**inputs, "prev_action": before.prev_action}
        if not self._on_cpu:
            observation, inputs = buffer_map(self._to_device, (observation, inputs))
        observation, inputs = buffer_map(lambda leaf: leaf.unsqueeze(0), (observation, inputs))
        return self.model(observation, before.rnn_state, **inputs)

    def _remembered(
        self, env_indices: EnvIndices, observation: Tree = None
    ) -> tuple[NamedTuple, slice | torch.Tensor]:
        """Return the memory, grown if needed, and indices into it."""
        return self._memory.at(self._evaluating, env_indices, self.initial_memory, observation)

    @staticmethod
    def _remember(memory: NamedTuple, indices: slice | torch.Tensor, state: NamedTuple) -> None:
        """Write the states after a step to the memory."""
        for name in state._fields:
            memory.rnn_state._get(name)[indices] = state._get(name)
