"""What one update of PPO looks at."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parllel.agents import map_plain
from parllel.buffers import Samples
from parllel.types import Tree


@dataclass(frozen=True)
class PpoInputs:
    """A batch or a minibatch of N steps; a subclass may add fields, which are selected alike.

    Attributes:
        agent: keyword arguments of the agent's `evaluate` besides the action: `observation`
            [N, ...] and whatever the model wants more.
        action: [N, ...], as stored.
        log_prob, value: [N], of the policy and the value function that sampled.
        advantage, return_: [N].
        valid: bool [N], or None where every step counts.
    """

    agent: dict[str, Tree]
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    return_: Tensor
    valid: Tensor | None

    @property
    def n_steps(self) -> int:
        """How many steps count."""
        return int(self.return_.numel() if self.valid is None else self.valid.sum())

    def select(self, indices: Tensor) -> PpoInputs:
        """Return copies of the steps at `indices`, int64."""
        selected = {
            field.name: _select(getattr(self, field.name), indices) for field in fields(self)
        }
        return type(self)(**selected)


def _select(value: Any, indices: Tensor) -> Any:
    if isinstance(value, dict):
        return {name: _select(item, indices) for name, item in value.items()}
    return map_plain(lambda leaf: leaf.index_select(0, indices), value)


def tensors(samples: Samples, path: str, device: torch.device) -> Any:
    """Return the field at `path` as tensors [T, B, ...]; on the CPU these are views of the samples.

    Raises:
        ValueError: if there is no such field, or it is None; the message says which there are.
    """
    node: Any = samples
    for name in path.split("."):
        there = getattr(node, "_fields", ())
        node = getattr(node, name) if name in there else None
        if node is None:
            raise ValueError(
                f"PPO needs samples.{path}, but {name!r} is missing; there are {sorted(there)}"
            )
    return map_plain(lambda leaf: torch.from_numpy(np.asarray(leaf)).to(device), node)


def flat_tensors(samples: Samples, path: str, device: torch.device) -> Any:
    """Return what `tensors` does with T and B as one dimension, [T * B, ...].

    On the CPU these are views of the samples, unless a field's rows do not lie in one piece.
    """
    return map_plain(lambda leaf: leaf.flatten(0, 1), tensors(samples, path, device))
