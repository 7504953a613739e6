"""Policies and critics of continuous actions, as separate networks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parllel.algos.arguments import shape_of
from parllel.torch.models.mlp_model import Activation, MlpModel
from parllel.types import Tree


class PolicyModel(nn.Module):
    """Policy network of SAC and TD3: an encoder, if there is one, and fully connected layers.

    Initial weights and biases are uniform in +-1 / sqrt(inputs), as in PyTorch's `nn.Linear` and in the
    common implementations of both algorithms.

    Args:
        trunk: the shape of one observation (an int n means (n,)), or an encoder of observations to features
            [N, encoder.n_features].
        n_outputs: twice the number of elements in an action for SAC (means, then log standard deviations),
            or that number for TD3.
        hidden_sizes: units of each hidden layer; may be empty.
        seed: seed of the initial weights, or a generator to draw them from.
        activation: "relu" or "tanh", after each hidden layer.
    """

    def __init__(
        self,
        trunk: int | Sequence[int] | nn.Module,
        n_outputs: int,
        hidden_sizes: Sequence[int],
        seed: int | torch.Generator,
        *,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        generator = _generator(seed)
        self.encoder, n_inputs = _encoder(trunk, "PolicyModel")
        self.network = _network(n_inputs, hidden_sizes, n_outputs, generator, activation)

    def forward(self, observation: Tree) -> Tensor:
        """Return the outputs [N, n_outputs]."""
        outputs: Tensor = self.network(_features(self.encoder, observation))
        return outputs


class CriticModel(nn.Module):
    """Several critics Q(observation, action), which share the encoder if there is one.

    The target of SAC and TD3 is the smallest of their estimates (Fujimoto et al. 2018, section 4.2).

    Args:
        trunk: as in `PolicyModel`.
        action_size: number of elements in an action.
        hidden_sizes: units of each hidden layer, in each critic.
        seed: seed of the initial weights, or a generator to draw them from.
        n_critics: number of networks.
        activation: "relu" or "tanh", after each hidden layer.
    """

    def __init__(
        self,
        trunk: int | Sequence[int] | nn.Module,
        action_size: int,
        hidden_sizes: Sequence[int],
        seed: int | torch.Generator,
        *,
        n_critics: int = 2,
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if n_critics < 1:
            raise ValueError(f"CriticModel: n_critics: expected at least 1, got {n_critics}")
        generator = _generator(seed)
        self.encoder, n_features = _encoder(trunk, "CriticModel")
        self.networks = nn.ModuleList(
            _network(n_features + action_size, hidden_sizes, 1, generator, activation)
            for _ in range(n_critics)
        )

    def forward(self, observation: Tree, action: Tensor) -> Tensor:
        """Return the values [n_critics, N] of unit actions [N, action_size], see `SquashedGaussian`."""
        features = _features(self.encoder, observation)
        # Cast as the first layer would: the observation may hold integers.
        features = features.reshape(len(features), -1).to(action.dtype)
        inputs = torch.cat([features, action], dim=-1)
        return torch.stack([network(inputs).squeeze(-1) for network in self.networks])


def _generator(seed: int | torch.Generator) -> torch.Generator:
    return seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)


def _encoder(trunk: int | Sequence[int] | nn.Module, who: str) -> tuple[nn.Module | None, int]:
    """Return the encoder and the number of features."""
    if isinstance(trunk, nn.Module):
        return trunk, int(trunk.n_features)  # type: ignore[arg-type]
    return None, math.prod(shape_of(trunk, f"{who}: trunk"))


def _features(encoder: nn.Module | None, observation: Tree) -> Tensor:
    features: Tensor = observation if encoder is None else encoder(observation)
    return features


def _network(
    n_inputs: int,
    hidden_sizes: Sequence[int],
    n_outputs: int,
    generator: torch.Generator,
    activation: Activation,
) -> MlpModel:
    return MlpModel(
        n_inputs,
        hidden_sizes,
        n_outputs,
        output_gain=None,
        generator=generator,
        activation=activation,
    )
