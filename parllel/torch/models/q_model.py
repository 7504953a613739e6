"""Feed-forward model of action values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parllel.algos.arguments import shape_of
from parllel.torch.models.action_mask import allowed_actions
from parllel.torch.models.mlp_model import Activation, MlpModel
from parllel.types import Tree


class QModel(nn.Module):
    """Action values Q(s, a) of discrete actions, optionally with duelling networks.

    With `dueling`, two networks estimate the value of the state and the advantages of the actions
    (Wang et al. 2016, eq. 9):

        Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a')

    Initial weights and biases after the encoder are uniform in +-1 / sqrt(inputs), as in PyTorch's
    `nn.Linear` and in the common implementations of DQN.

    Args:
        trunk: the shape of one observation (an int n means (n,)), or an encoder of observations to
            features [N, encoder.n_features]: an `MlpEncoder`, `CnnEncoder`, `TreeEncoder`, or your module.
        n_actions: number of actions.
        hidden_sizes: units of each hidden layer after the trunk, in both networks if there are two.
        seed: seed of the initial weights, or a generator to draw them from, such as the one that drew the
            encoder's weights.
        dueling: whether to use two networks.
        activation: "relu" or "tanh", applied after each hidden layer.
        action_mask: path of the part of an observation that is 0 for each forbidden action, [N, n_actions];
            their values are -inf. A mask that forbids all is ignored. `trunk` is then an encoder of the
            whole observation. None for no mask.

    Raises:
        ValueError: for a mask without an encoder, or if a size is less than one.
    """

    def __init__(
        self,
        trunk: int | Sequence[int] | nn.Module,
        n_actions: int,
        hidden_sizes: Sequence[int],
        seed: int | torch.Generator,
        *,
        dueling: bool = False,
        activation: Activation = "relu",
        action_mask: str | None = None,
    ) -> None:
        super().__init__()
        if action_mask is not None and not isinstance(trunk, nn.Module):
            raise ValueError(
                "QModel: action_mask: expected an encoder of observations with several parts as trunk, such "
                f"as a TreeEncoder, got {trunk!r}"
            )
        self.n_actions, self.action_mask = int(n_actions), action_mask
        generator = (
            seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        )
        self.encoder: nn.Module | None = None
        if isinstance(trunk, nn.Module):
            self.encoder = trunk
            n_inputs = int(trunk.n_features)  # type: ignore[arg-type]
        else:
            n_inputs = math.prod(shape_of(trunk, "QModel: trunk"))

        def network(n_outputs: int) -> MlpModel:
            return MlpModel(
                n_inputs,
                hidden_sizes,
                n_outputs,
                output_gain=None,
                generator=generator,
                activation=activation,
            )

        # Values of the actions, or advantages if there is a value of the state.
        self.actions = network(self.n_actions)
        self.state_value: MlpModel | None = network(1) if dueling else None

    def forward(self, observation: Tree) -> Tensor:
        """Return the values [N, n_actions] of observations [N, ...]."""
        features = observation if self.encoder is None else self.encoder(observation)
        values: Tensor = self.actions(features)
        if self.state_value is not None:
            # Subtracting the mean makes V and A identifiable: without it, a constant could move between them.
            values = self.state_value(features) + values - values.mean(dim=-1, keepdim=True)
        if self.action_mask is not None:
            values = values.masked_fill(~self.allowed(observation), -torch.inf)
        return values

    def allowed(self, observation: Tree) -> Tensor:
        """Return which actions the mask of observations allows, bool [N, n_actions].

        A mask that forbids everything is ignored.

        Raises:
            ValueError: if observations have no mask, or one of another size.
        """
        assert self.action_mask is not None
        return allowed_actions(observation, self.action_mask, self.n_actions, "QModel")
