"""Interface between an algorithm and several agents that it trains together."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from parllel.types import Tree


class LearningGroup(NamedTuple):
    """Agents that share one set of parameters, not used by any other agent."""

    names: tuple[str, ...]
    parameters: list[nn.Parameter]


class MultiAgent(Protocol):
    """Several agents of one environment, trainable by `parllel.torch.MultiAgentPPO`.

    Attributes:
        names: names of the agents, which are the keys of observations, actions and agent infos.
        device: device on which the models run.
        model: module that holds all trained parameters.
    """

    names: tuple[str, ...]
    device: torch.device
    model: nn.Module

    def evaluate(self, observation: Tree, action: Tree, **inputs: Tree) -> tuple[Tree, Tree, Tree]:
        """Return `(log_prob, entropy, value)` by agent, each [N], with gradients for an update."""

    def learning_groups(self) -> list[LearningGroup]:
        """Group agents that share parameters."""

    def train_mode(self) -> Any:
        """Prepare the models for an update."""

    def sample_mode(self) -> Any:
        """Switch to sampling, where actions are drawn at random."""
