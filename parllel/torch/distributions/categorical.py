"""Categorical distribution over n discrete actions."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor

from parllel.torch.distributions.distribution import Distribution


class Categorical(Distribution):
    """Categorical distribution: parameters are unnormalised logits [..., n], actions int64 [...].

    The first action is `start`, as in a Discrete space.

    A logit of -inf masks an action: it is never drawn and adds nothing to entropy or divergence.
    At least one logit must be finite.

    Raises:
        ValueError: if `n` is less than one.
    """

    def __init__(self, n: int, start: int = 0) -> None:
        if n < 1:
            raise ValueError(f"Categorical: n: expected at least 1 action, got {n}")
        self.n = int(n)
        self.start = int(start)

    @property
    def action_space(self) -> spaces.Discrete:
        """Discrete(n, start=start)."""
        return spaces.Discrete(self.n, start=self.start)

    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tensor:
        """Draw standard Gumbel noise [T, B, n]."""
        return gumbel((T, B, self.n), generator)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return the argmax of logits plus Gumbel noise (Gumbel 1954; Yellott 1977)."""
        # Needs neither a softmax nor a generator per draw: the noise of a batch can be drawn in advance.
        return self._action(torch.argmax(params + noise, dim=-1))

    def mode(self, params: Tensor) -> Tensor:
        """Return the action with the largest logit."""
        return self._action(torch.argmax(params, dim=-1))

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Return log p(action), [...]; -inf for a masked action."""
        return self._gather(torch.log_softmax(params, dim=-1), action)

    def entropy(self, params: Tensor) -> Tensor:
        """Return -sum p log p, [...]."""
        return _entropy(torch.log_softmax(params, dim=-1))

    def kl_divergence(self, params_p: Tensor, params_q: Tensor) -> Tensor:
        """Return sum p (log p - log q), [...]; inf where q masks what p may draw."""
        log_p = torch.log_softmax(params_p, dim=-1)
        log_q = torch.log_softmax(params_q, dim=-1)
        p = log_p.exp()
        # Filled before the product, because 0 * inf is NaN, in the gradient too.
        return (p * (log_p - log_q).masked_fill(p == 0, 0.0)).sum(dim=-1)

    def sample_and_log_prob(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sampled action and its log-probability, from one log-softmax."""
        # Positional arguments and a single log-softmax: this runs at every step, where each extra call costs
        # microseconds.
        index = torch.argmax(params + noise, -1, True)
        log_prob = torch.log_softmax(params, -1).gather(-1, index)
        return self._action(index.squeeze(-1)), log_prob.squeeze(-1)

    def log_prob_and_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy from one log-softmax.

        Raises:
            ValueError: if there is not one logit for each action.
        """
        if params.shape[-1] != self.n:
            raise ValueError(
                f"Categorical: expected logits of shape [..., {self.n}], got {tuple(params.shape)}"
            )
        log_p = torch.log_softmax(params, dim=-1)
        return self._gather(log_p, action), _entropy(log_p)

    def _action(self, index: Tensor) -> Tensor:
        return index + self.start if self.start else index

    def _gather(self, log_p: Tensor, action: Tensor) -> Tensor:
        # `gather` accepts only int64, and buffers may hold narrower integers.
        index = action.long() - self.start if self.start else action.long()
        return log_p.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw standard Gumbel noise, -log E with E exponential. Finite even if E rounds to zero."""
    # One logarithm less than -log(-log U) of uniform numbers. Infinite noise on a masked logit would give
    # inf - inf = NaN, which argmax treats as the largest.
    exponential = torch.empty(shape).exponential_(generator=generator)
    return exponential.clamp_(min=torch.finfo(torch.float32).tiny).log_().neg_()


def _entropy(log_p: Tensor) -> Tensor:
    # -inf becomes a huge finite number, cancelled by its probability of zero.
    return -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(dim=-1)
