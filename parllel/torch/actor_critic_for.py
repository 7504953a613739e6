"""Agents of SAC and TD3 with common default models, chosen by the spaces of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import torch
from torch import nn

from parllel.cages.spaces import Spaces
from parllel.runs.names import suggest_names
from parllel.seeding import Seeds
from parllel.torch.agent_for import encoder_for
from parllel.torch.agents.sac_agent import SacAgent
from parllel.torch.agents.td3_agent import TD3Agent
from parllel.torch.box_scale import BoxScale
from parllel.torch.models.actor_critic import CriticModel, PolicyModel
from parllel.torch.models.cnn_encoder import Convolutions
from parllel.torch.models.mlp_model import Activation


@suggest_names()
def sac_agent_for(
    spaces: Spaces,
    *,
    seeds: Seeds,
    hidden_sizes: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    n_critics: int = 2,
    convolutions: Convolutions | None = None,
    compute_dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> SacAgent:
    """Return an agent for SAC with models that fit the spaces.

    Policy and critics are separate networks. With images or several parts in an observation, each of the
    two has an encoder as in `agent_for`; the critics share theirs.

    Args:
        spaces: the environments' spaces, such as `cages[0].spaces`. Actions are a Box of floats with finite
            bounds.
        seeds: source of the seeds named "model" and "agent".
        hidden_sizes: units of the hidden layers of each network; (256, 256) as in Haarnoja et al. 2018b.
        activation: "relu" or "tanh", after each hidden layer.
        n_critics: number of critics.
        convolutions, compute_dtype: for images, see `agent_for`.
        device: device on which the models run.

    Raises:
        TypeError: for other spaces.
        ValueError: for a Box with infinite bounds, for images that do not fit the convolutions, or a device
            that PyTorch cannot use here.
    """
    scale = BoxScale(spaces.action, "sac_agent_for")
    policy, critics = _models(
        spaces,
        seeds,
        2 * scale.size,
        scale.size,
        hidden_sizes=hidden_sizes,
        activation=activation,
        n_critics=n_critics,
        convolutions=convolutions,
        compute_dtype=compute_dtype,
    )
    return SacAgent(policy, critics, scale.space, seed=seeds.integer("agent"), device=device)


@suggest_names()
def td3_agent_for(
    spaces: Spaces,
    *,
    seeds: Seeds,
    exploration_noise: float = 0.1,
    hidden_sizes: Sequence[int] = (256, 256),
    activation: Activation = "relu",
    n_critics: int = 2,
    convolutions: Convolutions | None = None,
    compute_dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> TD3Agent:
    """Return an agent for TD3 with models that fit the spaces.

    Args:
        exploration_noise: standard deviation of the noise that is added to sampled actions, where an
            action's range is [-1, 1]; 0.1 as in Fujimoto et al. 2018.
        others: as in `sac_agent_for`.

    Raises:
        TypeError, ValueError: as `sac_agent_for`.
    """
    scale = BoxScale(spaces.action, "td3_agent_for")
    policy, critics = _models(
        spaces,
        seeds,
        scale.size,
        scale.size,
        hidden_sizes=hidden_sizes,
        activation=activation,
        n_critics=n_critics,
        convolutions=convolutions,
        compute_dtype=compute_dtype,
    )
    return TD3Agent(
        policy,
        critics,
        scale.space,
        exploration_noise=exploration_noise,
        seed=seeds.integer("agent"),
        device=device,
    )


def _models(
    spaces: Spaces,
    seeds: Seeds,
    n_outputs: int,
    action_size: int,
    *,
    hidden_sizes: Sequence[int],
    activation: Activation,
    n_critics: int,
    **images: Any,
) -> tuple[PolicyModel, CriticModel]:
    # One generator for all networks, in this order.
    generator = torch.Generator().manual_seed(seeds.integer("model"))

    def trunk() -> nn.Module | Sequence[int]:
        space: gym.Space[Any] = spaces.observation
        # Plain vectors need no encoder.
        if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
            return space.shape
        return encoder_for(space, generator=generator, **images)

    policy = PolicyModel(trunk(), n_outputs, hidden_sizes, generator, activation=activation)
    critics = CriticModel(
        trunk(), action_size, hidden_sizes, generator, n_critics=n_critics, activation=activation
    )
    return policy, critics
