"""The inputs of one update of PPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map, named_map
from parllel.transforms.field_checks import missing_field
from parllel.types import Tree


@dataclass(frozen=True)
class PpoInputs:
    """A batch or a minibatch of N steps; a subclass may add fields, from which `select` selects as well.

    Attributes:
        agent: keyword arguments of the agent's `evaluate` besides the action: `observation`
            [N, ...] and whatever the model wants more.
        action: [N, ...], as stored.
        log_prob, value: [N], of the policy and the value function at the start of the update: those that
            sampled, or with `weight` the learner's own.
        advantage, return_: [N].
        valid: bool [N], or None where every step counts.
        weight: [N], what the objective of each step is multiplied by, or None.
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
        """How many steps count."""
        return int(self.return_.numel() if self.valid is None else self.valid.sum())

    def select(self, indices: Tensor) -> PpoInputs:
        """Return copies of the steps at `indices`, int64."""
        # `index_select` takes half the time of `leaf[indices]`, which allows for more kinds of indices.
        return type(self)(**buffer_map(lambda leaf: leaf.index_select(0, indices), vars(self)))


def paths_of_steps(samples: Samples) -> dict[str, str]:
    """Return where the fields of PpoInputs are in a batch, without `agent`."""
    weighted = getattr(samples.agent, "importance_weight", None) is not None
    # The policy that ratios and clipping refer to.
    start = "agent.learner_" if weighted else "agent.agent_info."
    paths = {
        "action": "agent.action",
        "log_prob": f"{start}log_prob",
        "value": f"{start}value",
        "advantage": "agent.advantage",
        "return_": "agent.return_",
    }
    if weighted:
        paths["weight"] = "agent.importance_weight"
    if getattr(samples.env, "valid", None) is not None:
        paths["valid"] = "env.valid"
    return paths


def tensors(samples: Samples, path: str, device: torch.device, who: str = "PPO") -> Any:
    """Return the field at `path` as tensors [T, B, ...]; on the CPU these are views of the samples.

    who: needs it, for the message.

    Raises:
        ValueError: if there is no such field, or it is None; the message says which there are.
    """
    return named_map(lambda leaf: _tensor(leaf, device), _field(samples, path, who))


def _field(samples: Samples, path: str, who: str) -> Tree:
    try:
        field = field_at(samples, path)
    except ValueError as error:
        raise ValueError(missing_field(who, path, error)) from None
    if field is None:
        raise ValueError(missing_field(who, path))
    return field


def _tensor(leaf: Any, device: torch.device) -> Tensor:
    return torch.from_numpy(np.asarray(leaf)).to(device)


def action_tensors(samples: Samples, device: torch.device) -> Any:
    """Return `agent.action` as `tensors` does, with some action that was taken where there was no step.

    What is stored there, zeros mostly, need not be an action at all, and the probability of every cell is
    asked for where all rows of a sequence are evaluated.
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
    """Return what `tensors` does with T and B as one dimension, [T * B, ...].

    On the CPU these are views of the samples, unless a field's rows do not lie in one piece.
    """
    # `view` would raise where rows do not lie in one piece.
    return named_map(lambda leaf: _tensor(leaf, device).flatten(0, 1), _field(samples, path, who))
