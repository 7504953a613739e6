"""What an algorithm needs to know about several agents that it trains."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from parllel.types import Tree


class LearningGroup(NamedTuple):
    """Agents that share one set of parameters, which no other agent uses."""

    names: tuple[str, ...]
    parameters: list[nn.Parameter]


class MultiAgent(Protocol):
    """Agents that act in one environment, as `parllel.torch.MultiAgentPPO` trains them.

    Attributes:
        names: of the agents, the keys of observations, actions and agent infos.
        device: where the models compute.
        model: whose parameters are all that is trained.
    """

    names: tuple[str, ...]
    device: torch.device
    model: nn.Module

    def evaluate(self, observation: Tree, action: Tree, **inputs: Tree) -> tuple[Tree, Tree, Tree]:
        """Return `(log_prob, entropy, value)` by agent, each [N], with gradients for an update."""

    def learning_groups(self) -> list[LearningGroup]:
        """Return which agents learn together."""

    def train_mode(self) -> Any:
        """Prepare the models for an update."""

    def sample_mode(self) -> Any:
        """Explore."""
