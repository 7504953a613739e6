"""Parameter sets to start from; constructors of algorithms have no defaults of their own."""

from __future__ import annotations

from typing import Any

PPO_DEFAULTS: dict[str, Any] = {
    # Schulman et al. 2017, with the details of Huang et al. 2022 ("The 37 implementation details").
    "learning_rate": 2.5e-4,
    "learning_rate_anneal_steps": None,
    "epochs": 4,
    "minibatches": 4,
    "ratio_clip": 0.2,
    "value_clip": None,
    "value_loss_coeff": 0.5,
    "entropy_loss_coeff": 0.0,
    "clip_grad_norm": 0.5,
    "kl_limit": None,
}
