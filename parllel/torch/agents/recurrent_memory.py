"""What recurrent agents remember of each environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from parllel.agents.agent import EnvIndices
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_map
from parllel.types import State, Tree

# Returns the memory of N environments at the start of an episode, leaves [N, ...].
Start: TypeAlias = Callable[[int], NamedTuple]


class RecurrentMemory:
    """State of the model and previous action of each environment, in eval mode and in all others.

    The memory grows as environments appear, whose number is not known in advance.

    Args:
        device: device of the memory.

    Attributes:
        device: of the memory; changed by `move`.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Separate: an evaluation between two batches must not change the memory of sampling.
        self._modes: dict[bool, NamedTuple] = {}

    def at(
        self, evaluating: bool, env_indices: EnvIndices, start: Start, observation: Tree = None
    ) -> tuple[NamedTuple, slice | Tensor]:
        """Return the memory of a mode, grown if needed, and indices into it.

        observation: tells the number of environments where the indices do not.
        """
        if isinstance(env_indices, slice):
            stop = env_indices.stop
            if stop is None:
                stop = 1 if observation is None else len(_leaves(observation)[0])
            indices: slice | Tensor = env_indices
        else:
            numbers = np.asarray(env_indices)
            if numbers.dtype == np.bool_:  # a mask would be read as environments 0 and 1
                raise ValueError(
                    "env_indices: expected a slice or numbers of environments, got a mask; "
                    "np.flatnonzero makes numbers of it"
                )
            indices = torch.as_tensor(numbers.astype(np.int64), device=self.device)
            stop = int(indices.max()) + 1 if len(indices) else 0
        memory = self._modes.get(evaluating)
        size = 0 if memory is None else len(_leaves(memory)[0])
        if memory is None or size < stop:
            # At least one row, so that empty indices return a memory too.
            more = start(max(stop - size, 1))
            memory = more if memory is None else buffer_map(_joined, memory, more)
            self._modes[evaluating] = memory
        return memory, indices

    def clear(self, evaluating: bool | None = None) -> None:
        """Forget all environments, of one mode or of both."""
        if evaluating is None:
            self._modes.clear()
        else:
            self._modes.pop(evaluating, None)

    def forget(self, evaluating: bool, env_indices: EnvIndices, start: Start) -> None:
        """Set some environments to the start of an episode."""
        memory, indices = self.at(evaluating, env_indices, start)
        # One row, broadcast over all cleared environments.
        first = buffer_map(lambda leaf: leaf[:1], start(1))

        def clear(leaf: Tensor, initial: Tensor) -> None:
            leaf[indices] = initial

        # `step` creates inference tensors, which torch allows to be written only in inference mode.
        with torch.inference_mode():
            buffer_map(clear, memory, first)

    def move(self, device: torch.device) -> None:
        """Move everything to another device."""
        self.device = device
        for mode, memory in self._modes.items():
            self._modes[mode] = buffer_map(lambda leaf: leaf.to(device), memory)

    def state(self, evaluating: bool) -> State:
        """Return the memory of a mode as arrays."""
        memory = self._modes.get(evaluating)
        if memory is None:
            return {}
        # Copies, as each step writes into the memory in place.
        return {"memory": [leaf.cpu().numpy().copy() for leaf in _leaves(memory)]}

    def load_state(self, evaluating: bool, state: State, start: Start) -> None:
        """Restore a state returned by `state`."""
        self._modes.pop(evaluating, None)
        if "memory" in state:
            leaves = iter([torch.from_numpy(np.array(leaf)) for leaf in state["memory"]])
            like = start(len(state["memory"][0]))
            self._modes[evaluating] = buffer_map(
                lambda leaf: next(leaves).to(self.device, leaf.dtype), like
            )


def no_action(example: Any, action_space: Any, start: Any) -> Tensor | None:
    """Return the zero that stands for no previous action; None without an example of an action.

    Raises:
        ValueError: for actions that do not count from 0.
    """
    if example is None:
        return None
    if np.any(start):
        raise ValueError(
            "prev_action: expected actions that count from 0, which stands for none at the beginning of "
            f"an episode, got {action_space}; shift them in a wrapper of the environment"
        )
    return torch.zeros_like(torch.as_tensor(example))


def check_prev_action(who: str, example: Tensor, action: Tensor) -> None:
    """Compare an action with the example, whose memory would silently cast and broadcast it.

    Raises:
        ValueError: if the shape differs, or the example is integer where actions are not.
    """
    shape, fraction = action.shape[1:], action.is_floating_point()
    if example.shape != shape or (fraction and not example.is_floating_point()):
        raise ValueError(
            f"{who}: prev_action: expected an example of one action, {action.dtype} "
            f"{tuple(shape)}, got {example.dtype} {tuple(example.shape)}"
        )


def first_memory(rnn_state: Tree, no_action: Tensor | None, N: int) -> NamedTuple:
    """Return the memory of N environments at the start of an episode.

    rnn_state: the model's initial state, leaves [N, ...].  no_action: the zero of an action, if it is
    remembered.
    """
    fields = {"rnn_state": rnn_state}
    if no_action is not None:
        device = _leaves(rnn_state)[0].device
        fields["prev_action"] = no_action.to(device).expand(N, *no_action.shape).clone()
    return NamedTuple(**fields)


def _joined(first: Tensor, second: Tensor) -> Tensor:
    return torch.cat((first, second))


def _leaves(tree: Tree) -> list[Tensor]:
    leaves: list[Tensor] = []
    buffer_map(leaves.append, tree)
    return leaves
