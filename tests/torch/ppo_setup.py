"""Small agents and a full set of arguments for tests of PPO."""

from __future__ import annotations

import torch

from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    GaussianPgAgent,
    PgModel,
)

SETTINGS = {
    "learning_rate": 1e-2,
    "learning_rate_anneal_steps": None,
    "epochs": 2,
    "minibatches": 3,
    "ratio_clip": 0.2,
    "value_clip": None,
    "value_loss_coeff": 0.5,
    "entropy_loss_coeff": 0.01,
    "clip_grad_norm": 0.5,
    "kl_limit": None,
    "seed": 0,
}


def categorical(dtype=torch.float64):
    model = PgModel((4,), CategoricalHead(3), (8, 8), seed=0).to(dtype)
    return CategoricalPgAgent(model, 3, seed=0)


def gaussian(dtype=torch.float64):
    model = PgModel((4,), GaussianHead((2,), initial_log_std=-0.3), (8, 8), seed=0).to(dtype)
    return GaussianPgAgent(model, (2,), seed=0)


def ppo(agent, **settings):
    return PPO(agent, **{**SETTINGS, **settings})


def parameters(agent):
    return {name: array.copy() for name, array in agent.state()["model"].items()}


def perturb(agent, scale=0.1, seed=3):
    """Move the policy away from the one that sampled."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in agent.model.parameters():
            p.add_(scale * torch.randn(p.shape, generator=generator, dtype=p.dtype))
