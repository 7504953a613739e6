"""One choice out of n."""

from __future__ import annotations

import torch
from torch import Tensor

from parllel.torch.distributions.distribution import Distribution


class Categorical(Distribution):
    """One of `n` actions; parameters are unnormalised logits [..., n], actions int64 [...].

    A logit of -inf masks an action: it is never drawn and adds nothing to entropy or divergence.
    At least one logit must be finite.

    Raises:
        ValueError: if `n` is less than one.
    """

    def __init__(self, n: int) -> None:
        if n < 1:
            raise ValueError(f"Categorical: n: expected at least 1 action, got {n}")
        self.n = n

    def draw_noise(self, generator: torch.Generator, T: int, B: int) -> Tensor:
        """Draw standard Gumbel noise [T, B, n]."""
        return gumbel((T, B, self.n), generator)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return the argmax of logits plus Gumbel noise (Gumbel 1954; Yellott 1977)."""
        return torch.argmax(params + noise, dim=-1)

    def mode(self, params: Tensor) -> Tensor:
        """Return the action with the largest logit."""
        return torch.argmax(params, dim=-1)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Return log p(action), [...]; -inf for a masked action."""
        return _gather(torch.log_softmax(params, dim=-1), action)

    def entropy(self, params: Tensor) -> Tensor:
        """Return -sum p log p, [...]."""
        return _entropy(torch.log_softmax(params, dim=-1))

    def kl_divergence(self, params_p: Tensor, params_q: Tensor) -> Tensor:
        """Return sum p (log p - log q), [...]; inf where q masks what p may draw."""
        log_p = torch.log_softmax(params_p, dim=-1)
        log_q = torch.log_softmax(params_q, dim=-1)
        p = log_p.exp()
        # Filling comes before the product: 0 * inf would be NaN, in the gradient too.
        return (p * (log_p - log_q).masked_fill(p == 0, 0.0)).sum(dim=-1)

    def sample_and_log_prob(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return both; the index of the one serves as that of the other."""
        action = torch.argmax(params + noise, -1, True)
        log_prob = torch.log_softmax(params, -1).gather(-1, action)
        return action.squeeze(-1), log_prob.squeeze(-1)

    def log_prob_and_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return both from one log-softmax."""
        log_p = torch.log_softmax(params, dim=-1)
        return _gather(log_p, action), _entropy(log_p)


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw -log E with E exponential; finite even if E should round to zero."""
    exponential = torch.empty(shape).exponential_(generator=generator)
    return exponential.clamp_(min=torch.finfo(torch.float32).tiny).log_().neg_()


def _gather(log_p: Tensor, action: Tensor) -> Tensor:
    return log_p.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)


def _entropy(log_p: Tensor) -> Tensor:
    # -inf becomes a huge finite number, which its probability of zero then cancels.
    return -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(dim=-1)
