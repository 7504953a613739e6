"""Joint distribution over the actions of several agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import field_at
from parllel.torch.distributions.distribution import Distribution
from parllel.types import Tree


class EnsembleDistribution(Distribution):
    """One distribution per agent. Given the parameters, the agents act independently.

    Parameters, actions, noise and all results are trees keyed by agent. `joint` sums log
    probabilities and entropies over agents.

    Args:
        distributions: distributions, keyed by agent.

    Raises:
        ValueError: if there are no distributions.
    """

    def __init__(self, distributions: Mapping[str, Distribution]) -> None:
        self.distributions = dict(distributions)
        if not self.distributions:
            raise ValueError("EnsembleDistribution: expected at least one distribution, got none")

    @property
    def action_space(self) -> spaces.Dict | None:
        """The Dict of the agents' spaces; None if one of them is unknown."""
        return joint_space({name: one.action_space for name, one in self.distributions.items()})

    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tree:
        """Draw the noise of each agent, in order, from a single generator."""
        return self._each("draw_noise", generator=generator, T=T, B=B)

    def sample(self, params: Tree, noise: Tree) -> Tree:
        """Return the action of each agent."""
        return self._each("sample", params, noise)

    def mode(self, params: Tree) -> Tree:
        """Return the most likely action of each agent."""
        return self._each("mode", params)

    def log_prob(self, params: Tree, action: Tree) -> Tree:
        """Return the log of the probability of each agent's action, leaves [...]."""
        return self._each("log_prob", params, action)

    def entropy(self, params: Tree) -> Tree:
        """Return the entropy of each agent, leaves [...]."""
        return self._each("entropy", params)

    def kl_divergence(self, params_p: Tree, params_q: Tree) -> Tree:
        """Return KL(p || q) of each agent, leaves [...]."""
        return self._each("kl_divergence", params_p, params_q)

    def sample_and_log_prob(self, params: Tree, noise: Tree) -> tuple[Tree, Tree]:
        """Return both results, keyed by agent."""
        return self._each_two("sample_and_log_prob", params, noise)

    def log_prob_and_entropy(self, params: Tree, action: Tree) -> tuple[Tree, Tree]:
        """Return both results, keyed by agent."""
        return self._each_two("log_prob_and_entropy", params, action)

    @staticmethod
    def joint(terms: Tree) -> Tensor:
        """Return the sum over agents of log probabilities, entropies or divergences, [...].

        The sum belongs to the joint action, because agents draw independently.
        """
        leaves = terms.values() if isinstance(terms, dict) else terms
        return torch.stack(list(leaves)).sum(dim=0)

    def _each(self, method: str, *trees: Tree, **arguments: Any) -> NamedTuple:
        return NamedTuple(**self._results(method, trees, arguments))

    def _each_two(self, method: str, *trees: Tree) -> tuple[NamedTuple, NamedTuple]:
        pairs = self._results(method, trees, {})
        first, second = zip(*pairs.values(), strict=True)
        both = [dict(zip(pairs, values, strict=True)) for values in (first, second)]
        return NamedTuple(**both[0]), NamedTuple(**both[1])

    def _results(
        self, method: str, trees: tuple[Tree, ...], arguments: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            name: getattr(distribution, method)(*[field_at(t, name) for t in trees], **arguments)
            for name, distribution in self.distributions.items()
        }


def joint_space(of_agents: Mapping[str, spaces.Space[Any] | None]) -> spaces.Dict | None:
    """Return the Dict of the agents' spaces; None if one of them is None."""
    known = {name: space for name, space in of_agents.items() if space is not None}
    return spaces.Dict(known) if len(known) == len(of_agents) else None
