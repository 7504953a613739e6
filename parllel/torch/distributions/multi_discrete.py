"""Several independent choices at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from parllel.torch.distributions.categorical import Categorical, gumbel
from parllel.torch.distributions.distribution import Distribution


class MultiDiscrete(Distribution):
    """Independent choices out of `nvec[0]`, `nvec[1]`, ... actions.

    Parameters are the logits of all choices side by side, [..., sum(nvec)]; actions are int64
    [..., len(nvec)].

    Raises:
        ValueError: if `nvec` is empty or has an entry below one.
    """

    def __init__(self, nvec: Sequence[int]) -> None:
        self.nvec = tuple(int(n) for n in nvec)
        if not self.nvec:
            raise ValueError("MultiDiscrete: nvec: expected at least one choice, got none")
        self._parts = [Categorical(n) for n in self.nvec]

    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tensor:
        """Draw standard Gumbel noise [T, B, sum(nvec)]."""
        return gumbel((T, B, sum(self.nvec)), generator)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return the argmax of logits plus Gumbel noise of each choice."""
        return self.mode(params + noise)

    def mode(self, params: Tensor) -> Tensor:
        """Return the action with the largest logit of each choice."""
        return torch.stack([logits.argmax(dim=-1) for logits in self._split(params)], dim=-1)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Return the log of the product of all choices' probabilities, [...]."""
        choices = zip(self._parts, self._split(params), action.unbind(dim=-1), strict=True)
        return _sum([part.log_prob(logits, choice) for part, logits, choice in choices])

    def entropy(self, params: Tensor) -> Tensor:
        """Return the sum of the choices' entropies, [...]."""
        choices = zip(self._parts, self._split(params), strict=True)
        return _sum([part.entropy(logits) for part, logits in choices])

    def kl_divergence(self, params_p: Tensor, params_q: Tensor) -> Tensor:
        """Return the sum of the choices' divergences, [...]."""
        choices = zip(self._parts, self._split(params_p), self._split(params_q), strict=True)
        return _sum([part.kl_divergence(p, q) for part, p, q in choices])

    def _split(self, params: Tensor) -> Sequence[Tensor]:
        return torch.split(params, list(self.nvec), dim=-1)  # type: ignore[no-untyped-call,no-any-return]


def _sum(terms: list[Tensor]) -> Tensor:
    return torch.stack(terms).sum(dim=0)
