"""Heads map the output of a model's last layer to the parameters of a distribution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.torch.distributions.distribution import shape_of
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.types import Tree


class Head(nn.Module, ABC):
    """Connects a model to an action distribution. Subclass it for custom distributions.

    Args:
        n_outputs: number of outputs of the policy's last layer, and the size of an encoded previous
            action.
    """

    def __init__(self, n_outputs: int) -> None:
        super().__init__()
        self.n_outputs = n_outputs

    @abstractmethod
    def params(self, outputs: Tensor) -> Tree:
        """Return the parameters of the distribution, from outputs [..., n_outputs]."""

    @abstractmethod
    def inputs_of(self, action: Tensor) -> Tensor:
        """Encode previous actions [T, N, ...] as inputs [T, N, n_outputs]."""


class CategoricalHead(Head):
    """Logits of discrete actions, for `Categorical` and `MultiDiscrete`.

    Args:
        n_actions: number of logits; for `MultiDiscrete` the sum of `nvec`.
    """

    def __init__(self, n_actions: int) -> None:
        super().__init__(n_actions)

    def params(self, outputs: Tensor) -> Tensor:
        """Return the outputs, which are the logits [..., n_actions]."""
        return outputs

    def inputs_of(self, action: Tensor) -> Tensor:
        """Encode single choices [T, N] as one-hot vectors [T, N, n_actions].

        Raises:
            ValueError: for actions with several choices.
        """
        if action.dim() != 2:
            raise ValueError(
                f"prev_action: expected single choices [T, N], got {list(action.shape)}; "
                "several choices at once need a custom head"
            )
        # `one_hot` accepts only int64; the batch may hold narrower integers.
        return functional.one_hot(action.long(), self.n_outputs)


class GaussianHead(Head):
    """Mean of continuous actions, for `Gaussian`; `log_std` does not depend on the state.

    Args:
        action_shape: shape of one action; an int n means (n,).
        initial_log_std: initial log standard deviation of every dimension; 0 is a standard
            deviation of 1.
    """

    def __init__(self, action_shape: int | Sequence[int], initial_log_std: float) -> None:
        shape = shape_of(action_shape, "action_shape")
        super().__init__(math.prod(shape))
        self.action_shape = shape
        # A parameter instead of an output (Schulman et al. 2017), and a logarithm, so that any value is
        # valid.
        self.log_std = nn.Parameter(torch.full(shape, float(initial_log_std)))

    def params(self, outputs: Tensor) -> GaussianParams:
        """Return mean `[..., *action_shape]` with log_std `[*action_shape]`."""
        # For scalar actions this drops the last dimension.
        mean = outputs.reshape(*outputs.shape[:-1], *self.action_shape)
        return GaussianParams(mean, self.log_std)

    def inputs_of(self, action: Tensor) -> Tensor:
        """Flatten actions `[T, N, *action_shape]` to [T, N, n_outputs]."""
        return action.reshape(*action.shape[:2], -1)
