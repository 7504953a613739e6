"""Default parameters of algorithms, whose constructors have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parllel.runs.names import suggest_fields


@suggest_fields
@dataclass(frozen=True)
class PpoParameters:
    """Arguments of PPO except agent and seed, usable as a mapping: `PPO(agent, **parameters, seed=0)`.

    The defaults are those of Huang et al. 2022 ("The 37 implementation details of proximal policy
    optimization") for small networks, except that the learning rate is constant, values are not clipped
    and there is no entropy bonus.

    Attributes:
        learning_rate: of Adam
        learning_rate_anneal_steps: environment steps over which the learning rate falls to 0; None: constant
        epochs: passes over each batch
        minibatches: updates per pass
        ratio_clip: how far the likelihood ratio may be from 1
        value_clip: how far a value may move from the sampled one; None: no limit
        value_loss_coeff: weight of the value loss
        entropy_loss_coeff: weight of the entropy bonus
        clip_grad_norm: largest norm of all gradients together; None: no limit
        kl_limit: estimated divergence from the sampling policy that ends learning from a batch; None: never
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

    # `**` needs this method and the next to unpack an object.
    def keys(self) -> Iterator[str]:
        """Return the parameter names."""
        return (field.name for field in dataclasses.fields(self))

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


PPO_DEFAULTS = PpoParameters()
