"""Several agents in one environment that share a model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.torch.agents.learning_group import LearningGroup
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.distributions.ensemble import EnsembleDistribution
from parllel.types import Tree


class EnsembleAgent(PgAgent):
    """Policy-gradient agent that acts for all agents of an environment with one model.

    Observations, actions, and `value` and `log_prob` of the agent info are trees keyed by agent.

    Args:
        model: module that takes the tree of observations and returns `(params, value)`, both keyed
            by agent. Use a `parllel.torch.SharedModel`, or your own model, in which agents may see
            each other's observations.
        distributions: action distributions, keyed by agent.
        seed, device: see `PgAgent`.

    Attributes:
        names: names of the agents.
    """

    def __init__(
        self,
        model: nn.Module,
        distributions: Mapping[str, Distribution],
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, EnsembleDistribution(distributions), seed=seed, device=device)
        self.names = tuple(distributions)

    def evaluate(self, observation: Tree, action: Tree, **inputs: Tree) -> tuple[Tree, Tree, Tree]:
        """Return `(log_prob, entropy, value)`, dicts of [N] keyed by agent, with gradients for an update.

        Raises:
            ValueError: if the shapes of values and log probabilities differ.
        """
        params, value = self._forward(observation, inputs)
        if not self._on_cpu:
            action = buffer_map(self._to_device, action)
        log_prob, entropy = self.distribution.log_prob_and_entropy(params, action)
        # Checked per leaf and before the loss, in which a value of another shape would silently broadcast.
        shapes = [
            {path: tuple(leaf.shape) for path, leaf in buffer_leaves(tree)}
            for tree in (log_prob, value)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{type(self.model).__name__}: expected values of shapes {shapes[0]}, got {shapes[1]}"
            )
        return log_prob, entropy, value

    def learning_groups(self) -> list[LearningGroup]:
        """Return one group with all agents."""
        return [LearningGroup(self.names, list(self.model.parameters()))]

    def _choose(self, params: Tree, value: Tree, noise: Tree) -> tuple[Tree, Tree]:
        """Return the actions of all agents, and their log probabilities."""
        if noise is None and not self._evaluating:
            # PgAgent counts environments by `value`, which is a tree here.
            _, leaf = next(buffer_leaves(value))
            noise = buffer_map(lambda drawn: drawn[0], self._draw(1, len(leaf)))
        return super()._choose(params, value, noise)

    def _draw(self, T: int, B: int, seed: int | None = None) -> Tree:
        noise = self.distribution.draw_noise(self._generator_for(seed), T, B)
        return buffer_map(lambda leaf: leaf.to(self.device), noise)
