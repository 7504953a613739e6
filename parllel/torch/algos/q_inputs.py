"""Batches of transitions as tensors, for algorithms that learn action values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from parllel.replays.replay import Transitions
from parllel.types import Tree


@dataclass
class QInputs:
    """A batch of n transitions; see `parllel.replays.Transitions`.

    Attributes:
        agent, next_agent: keyword arguments of `agent.action_values` for the observations and the next
            observations; trees of tensors, leaves [n, ...].
        action: int64 [n].
        reward, discount, weight: [n] float32. The target is `reward + discount * value of the next state`.
    """

    agent: dict[str, Tree]
    next_agent: dict[str, Tree]
    action: Tensor
    reward: Tensor
    discount: Tensor
    weight: Tensor


def q_inputs(batch: Transitions) -> QInputs:
    """Return the inputs of an update from a batch whose fields are tensors."""
    fields: Any = batch
    return QInputs(
        agent={"observation": fields.observation},
        next_agent={"observation": fields.next_observation},
        action=fields.action,
        reward=fields.reward,
        discount=fields.discount,
        weight=fields.weight,
    )
