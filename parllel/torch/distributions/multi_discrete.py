"""Several independent categorical choices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from parllel.torch.distributions.categorical import Categorical, gumbel
from parllel.torch.distributions.distribution import Distribution


class MultiDiscrete(Distribution):
    """Independent categorical choices among `nvec[0]`, `nvec[1]`, ... actions.

    Parameters are the concatenated logits of all choices, [..., sum(nvec)]. Actions are int64
    [..., len(nvec)], counted from `start`, which has one number per choice; default 0.

    Raises:
        ValueError: if `nvec` is empty or has an entry below one, or `start` differs from it in
            length.
    """

    def __init__(self, nvec: Sequence[int], start: Sequence[int] | None = None) -> None:
        self.nvec = tuple(int(n) for n in nvec)
        if not self.nvec:
            raise ValueError("MultiDiscrete: nvec: expected at least one choice, got none")
        self.start = (0,) * len(self.nvec) if start is None else tuple(int(k) for k in start)
        if len(self.start) != len(self.nvec):
            raise ValueError(
                f"MultiDiscrete: start: expected {len(self.nvec)} numbers, got {list(self.start)}"
            )
        # One Categorical each: choices may differ in size, so a single softmax over an extra dimension does
        # not work.
        self._parts = [Categorical(*part) for part in zip(self.nvec, self.start, strict=True)]

    @property
    def action_space(self) -> spaces.MultiDiscrete:
        """MultiDiscrete(nvec, start=start)."""
        return spaces.MultiDiscrete(np.array(self.nvec), start=np.array(self.start))

    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tensor:
        """Draw standard Gumbel noise [T, B, sum(nvec)]."""
        return gumbel((T, B, sum(self.nvec)), generator)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return the argmax of logits plus Gumbel noise of each choice."""
        # Each choice has separate noise, so one argmax per choice draws them independently.
        return self.mode(params + noise)

    def mode(self, params: Tensor) -> Tensor:
        """Return the action with the largest logit of each choice."""
        choices = zip(self._parts, self._split(params), strict=True)
        return torch.stack([part.mode(logits) for part, logits in choices], dim=-1)

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
