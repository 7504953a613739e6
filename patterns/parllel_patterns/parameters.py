"""Parameter sets to start from; constructors of algorithms have no defaults of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PpoParameters:
    """What PPO takes beside agent and seed; a mapping as well: `PPO(agent, **parameters, seed=0)`.

    The defaults are those of Huang et al. 2022 ("The 37 implementation details of proximal policy
    optimization") for small networks, but that the learning rate stays, values are not clipped and entropy
    gets no bonus. What each is for stands at `PPO`.
    """

    learning_rate: float = 2.5e-4
    learning_rate_anneal_steps: int | None = None
    epochs: int = 4
    minibatches: int = 4
    ratio_clip: float = 0.2
    value_clip: float | None = None
    value_loss_coeff: float = 0.5
    entropy_loss_coeff: float = 0.0
    clip_grad_norm: float | None = 0.5
    kl_limit: float | None = None

    def keys(self) -> Iterator[str]:
        """Return the names."""
        return (field.name for field in dataclasses.fields(self))

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


PPO_DEFAULTS = PpoParameters()
