"""The agents of CleanRL's two scripts for PPO, as their files have them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def network(n_inputs, n_outputs):
    return nn.Sequential(
        nn.Linear(n_inputs, 64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, n_outputs),
    )


class DiscreteAgent(nn.Module):
    """As in ppo.py."""

    def __init__(self, n_inputs=4, n_actions=2):
        super().__init__()
        self.critic = network(n_inputs, 1)
        self.actor = network(n_inputs, n_actions)


class ContinuousAgent(nn.Module):
    """As in ppo_continuous_action.py."""

    def __init__(self, n_inputs=3, n_actions=1):
        super().__init__()
        self.critic = network(n_inputs, 1)
        self.actor_mean = network(n_inputs, n_actions)
        self.actor_logstd = nn.Parameter(torch.full((1, n_actions), -0.5))


def saved(path, agent):
    """Save a model, and return its path."""
    torch.save(agent.state_dict(), path)
    return str(path)


def computed(weights, actor, observation):
    """Return what the layers of a model give, by hand."""
    row = np.asarray(observation, np.float32)
    for layer in (0, 2, 4):
        total = weights[f"{actor}.{layer}.weight"].astype(np.float64) @ row
        row = total + weights[f"{actor}.{layer}.bias"]
        if layer < 4:
            row = np.tanh(row)
    return row
