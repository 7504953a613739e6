"""Inputs of a PPO update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parllel.algos.ppo_fields import needed_field
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map, named_map
from parllel.types import Tree


@dataclass(frozen=True)
class PpoInputs:
    """A batch or a minibatch of N steps. `select` also covers fields added by subclasses.

    Attributes:
        agent: keyword arguments of the agent's `evaluate` besides the action: `observation`
            [N, ...] and further inputs of the model.
        action: [N, ...], as stored.
        log_prob, value: [N], of policy and value function before the update: the ones that sampled, or
            with `weight` the learner's.
        advantage, return_: [N].
        valid: bool [N], or None if every step is valid.
        weight: [N], factor of each step's objective, or None.
    """

    agent: dict[str, Tree]
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    return_: Tensor
    valid: Tensor | None = None
    weight: Tensor | None = None

    @property
    def n_steps(self) -> int:
        """Number of valid steps."""
        return int(self.return_.numel() if self.valid is None else self.valid.sum())

    def select(self, indices: Tensor) -> PpoInputs:
        """Return copies of the steps at `indices`, int64."""
        # `index_select` takes half the time of `leaf[indices]`, which supports more kinds of indices.
        return type(self)(**buffer_map(lambda leaf: leaf.index_select(0, indices), vars(self)))


def tensors(samples: Samples, path: str, device: torch.device, who: str = "PPO") -> Any:
    """Return the field at `path` as tensors [T, B, ...]; on the CPU these are views of the samples.

    who: the object that needs the field, for errors.

    Raises:
        ValueError: if the field does not exist or is None; lists the existing ones.
    """
    return named_map(lambda leaf: _tensor(leaf, device), needed_field(samples, path, who))


def _tensor(leaf: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(np.asarray(leaf)).to(device)


def action_tensors(samples: Samples, device: torch.device) -> Any:
    """Return `agent.action` as `tensors` does, with invalid steps replaced by some action that was taken.

    Sequences are evaluated with all their rows, and the cells of invalid steps (mostly zeros) may not hold
    an action of the space.
    """
    action = tensors(samples, "agent.action", device)
    valid = getattr(samples.env, "valid", None)
    steps = np.ones(1, bool) if valid is None else np.asarray(valid)
    if steps.all() or not steps.any():
        return action
    taken = np.unravel_index(steps.argmax(), steps.shape)
    without = torch.from_numpy(~steps).to(device)

    def filled(leaf: Tensor) -> Tensor:
        mask = without.reshape(*without.shape, *[1] * (leaf.ndim - 2))
        return torch.where(mask, leaf[taken], leaf)

    return named_map(filled, action)


def flat_tensors(samples: Samples, path: str, device: torch.device, who: str = "PPO") -> Any:
    """Return the tensors of `tensors` with T and B merged, [T * B, ...].

    On the CPU these are views of the samples, unless the rows of a field are not contiguous.
    """
    # `view` would raise if rows are not contiguous.
    return named_map(
        lambda leaf: _tensor(leaf, device).flatten(0, 1), needed_field(samples, path, who)
    )
