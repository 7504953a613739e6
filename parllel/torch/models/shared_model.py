"""One model shared by all agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import field_at
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.torch.models.pg_model import PgOutput
from parllel.types import Tree


class SharedModel(nn.Module):
    """Runs one model on the observations of all agents in a single call.

    The agents' observations, [N, ...] each, are concatenated to [K * N, ...]; parameters and values
    are returned by agent. All agents must have observation and action spaces of equal shape.

    Args:
        model: module that returns `(params, value)`, see `parllel.torch.models`.
        names: names of the K agents, in the order of their ids.
        one_hot: append the agent's id as a one-hot vector of K numbers to its flattened observation, so that
            any model with `observation_size + K` inputs fits. Otherwise the model receives the keyword
            `agent_id`, int64 [K * N].

    Further keyword inputs, [N, ...], are repeated for every agent.

    Raises:
        ValueError: if there are no names, or an observation lacks an agent.
        TypeError: for `one_hot` with observations that are trees.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], *, one_hot: bool) -> None:
        super().__init__()
        if not names:
            raise ValueError("SharedModel: names: expected at least one agent, got none")
        self.model = model
        # The order defines the ids: it must be the same whenever the weights are loaded.
        self.names = tuple(names)
        self.one_hot = one_hot

    def forward(self, observation: Tree, **inputs: Tree) -> PgOutput:
        """Return dicts of the parameters and of the values [N], keyed by agent."""
        n_agents = len(self.names)
        parts = [field_at(observation, name) for name in self.names]
        inputs = buffer_map(lambda leaf: torch.cat([leaf] * n_agents), inputs)
        if self.one_hot:
            stacked = self.with_ids(parts)
        else:
            stacked = buffer_map(lambda *leaves: torch.cat(leaves), *parts)
            inputs["agent_id"] = self._ids(stacked)
        # One call instead of K: with small networks, most of the cost is call overhead.
        params, value = self.model(stacked, **inputs)
        n = len(value) // n_agents
        rows = [slice(i * n, (i + 1) * n) for i in range(n_agents)]
        by_agent = [
            dict(zip(self.names, [_rows_of(tree, some) for some in rows], strict=True))
            for tree in (params, value)
        ]
        return PgOutput(NamedTuple(**by_agent[0]), NamedTuple(**by_agent[1]))  # type: ignore[arg-type]

    def with_ids(self, observations: Sequence[Tree]) -> Tensor:
        """Return the agents' flattened observations one below the other, with their ids, [K * N, size + K].

        Raises:
            TypeError: for observations that are trees.
        """
        if not all(isinstance(part, Tensor) for part in observations):
            raise TypeError(
                "SharedModel: one_hot: expected observations that are one tensor for each agent, got trees. "
                "Use one_hot=False and a model with the keyword agent_id"
            )
        stacked = torch.cat(list(observations))
        flat = stacked.reshape(len(stacked), -1)
        if not flat.is_floating_point():
            flat = flat.float()
        n_agents = len(self.names)
        # `cat` puts each agent's N rows together, so each id is repeated N times.
        ids = torch.eye(n_agents, dtype=flat.dtype, device=flat.device)
        return torch.cat([flat, ids.repeat_interleave(len(flat) // n_agents, dim=0)], dim=1)

    def _ids(self, stacked: Tree) -> Tensor:
        _, leaf = next(buffer_leaves(stacked))
        n_agents = len(self.names)
        ids = torch.arange(n_agents, device=leaf.device)
        return ids.repeat_interleave(len(leaf) // n_agents)


def _rows_of(tree: Tree, rows: slice) -> Any:
    if isinstance(tree, GaussianParams):
        mean, log_std = tree
        # A log_std shared by all states has no rows.
        return GaussianParams(mean[rows], log_std[rows] if log_std.dim() == mean.dim() else log_std)
    return buffer_map(lambda leaf: leaf[rows], tree)
