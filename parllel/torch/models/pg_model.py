"""Feed-forward policy and value model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from parllel.algos.arguments import shape_of
from parllel.torch.models.action_mask import allowed_actions
from parllel.torch.models.heads import GaussianHead, Head
from parllel.torch.models.mlp_model import Activation, MlpModel
from parllel.types import Tree


class PgOutput(NamedTuple):
    """`params` of the distribution, and `value` [N]."""

    params: Tree
    value: Tensor


class PgModel(nn.Module):
    """Separate networks for policy and value, optionally after a shared encoder.

    The last layers are orthogonal with gain `policy_gain` and 1 (value), after Andrychowicz et al. 2021.

    Args:
        trunk: the shape of one observation (an int n means (n,)), the input of both networks; or a shared
            encoder of observations to features [N, encoder.n_features]: an `MlpEncoder`, `CnnEncoder`,
            `TreeEncoder`, or your module.
        head: maps the outputs of the policy network to parameters: a `CategoricalHead`, `GaussianHead`, or
            your class.
        hidden_sizes: units of each hidden layer in both networks; may be empty.
        seed: seed of the initial weights, or a generator to draw them from, such as the one that
            drew the encoder's weights.
        policy_gain: with 0, the untrained policy is the same in all states.
        activation: "tanh" or "relu", applied after each hidden layer.
        action_mask: path of the part of an observation that is 0 for each forbidden action, [N, n_outputs];
            their logits are -inf. A mask that forbids all is ignored. `trunk` is then an encoder of the whole
            observation, such as a `TreeEncoder`. None for no mask.

    Raises:
        ValueError: for a mask without an encoder.
        TypeError: for a mask with a GaussianHead.
    """

    def __init__(
        self,
        trunk: int | Sequence[int] | nn.Module,
        head: Head,
        hidden_sizes: Sequence[int],
        seed: int | torch.Generator,
        *,
        policy_gain: float = 0.01,
        activation: Activation = "tanh",
        action_mask: str | None = None,
    ) -> None:
        super().__init__()
        if action_mask is not None:
            _check_mask(trunk, head)
        self.action_mask = action_mask
        generator = (
            seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        )
        self.head = head
        self.encoder: nn.Module | None = None
        if isinstance(trunk, nn.Module):
            self.encoder = trunk
            # The only requirement on an encoder, so that users' modules fit too.
            n_inputs = int(trunk.n_features)  # type: ignore[arg-type]
        else:
            n_inputs = math.prod(shape_of(trunk, "PgModel: trunk"))
        # Only the encoder is shared (Schulman et al. 2017, section 6.1): without one, no gradient of the
        # value reaches the policy.
        self.policy = MlpModel(
            n_inputs,
            hidden_sizes,
            head.n_outputs,
            output_gain=policy_gain,
            generator=generator,
            activation=activation,
        )
        self.critic = MlpModel(
            n_inputs,
            hidden_sizes,
            1,
            output_gain=1.0,
            generator=generator,
            activation=activation,
        )

    def forward(self, observation: Tree) -> PgOutput:
        """Return parameters and values [N] of observations [N, ...]."""
        # Once for both networks: with images, the encoder takes nearly all of the time.
        features = observation if self.encoder is None else self.encoder(observation)
        outputs = self.policy(features)
        if self.action_mask is not None:
            outputs = outputs.masked_fill(~self.allowed(observation), -torch.inf)
        # Values [N, 1] would broadcast against returns [N] to [N, N] in the loss.
        return PgOutput(self.head.params(outputs), self.critic(features).squeeze(-1))

    def allowed(self, observation: Tree) -> Tensor:
        """Return which actions the mask of observations allows, bool [N, n_outputs].

        A mask that forbids everything is ignored.

        Raises:
            ValueError: if observations have no mask, or one of another size.
        """
        assert self.action_mask is not None
        return allowed_actions(observation, self.action_mask, self.head.n_outputs, "PgModel")


def _check_mask(trunk: object, head: Head) -> None:
    if not isinstance(trunk, nn.Module):
        raise ValueError(
            "PgModel: action_mask: expected an encoder of observations with several parts as trunk, such as "
            f"a TreeEncoder, got {trunk!r}"
        )
    if isinstance(head, GaussianHead):
        raise TypeError("PgModel: action_mask: expected a head with logits, got a GaussianHead")
