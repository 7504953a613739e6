"""Small agents and a full set of arguments for tests of PPO."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    GaussianPgAgent,
    MlpEncoder,
    MultiDiscrete,
    PgAgent,
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


N_INPUTS = 3


def agent_of(head, hidden=(8, 8), seed=0, *, activation="tanh", trunk=()):
    """Return an agent with one of the heads: logits, logits of several choices, or a normal distribution.

    trunk: units of layers that policy and value share.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = N_INPUTS
    if trunk:
        inputs = MlpEncoder(N_INPUTS, trunk, generator=generator, activation=activation)
    make = partial(
        PgModel, inputs, hidden_sizes=hidden, seed=generator, policy_gain=1.0, activation=activation
    )
    if head == "categorical":
        return CategoricalPgAgent(make(CategoricalHead(4)), 4, start=2, seed=0)
    if head == "multi_discrete":
        distribution = MultiDiscrete([3, 1, 2], start=[0, -1, 5])
        return PgAgent(make(CategoricalHead(6)), distribution, seed=0)
    head = GaussianHead(2, initial_log_std=-0.3, state_dependent=head == "state_dependent")
    return GaussianPgAgent(make(head), 2, seed=0)


HEADS = ("categorical", "multi_discrete", "gaussian", "state_dependent")


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, observation):
        return self.inner(observation)
