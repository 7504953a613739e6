"""Heads map the output of a model's last layer to the parameters of a distribution."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.algos.arguments import shape_of
from parllel.torch.distributions.gaussian import GaussianParams
from parllel.types import Tree


class Head(nn.Module, ABC):
    """Connects a model to an action distribution. Subclass it for custom distributions.

    Args:
        n_outputs: number of outputs of the policy's last layer.
        n_inputs: size of an encoded previous action; None for `n_outputs`.
    """

    def __init__(self, n_outputs: int, n_inputs: int | None = None) -> None:
        super().__init__()
        self.n_outputs = n_outputs
        self.n_inputs = n_outputs if n_inputs is None else n_inputs

    @abstractmethod
    def params(self, outputs: Tensor) -> Tree:
        """Return the parameters of the distribution, from outputs [..., n_outputs]."""

    @abstractmethod
    def inputs_of(self, action: Tensor) -> Tensor:
        """Encode previous actions [T, N, ...] as inputs [T, N, n_inputs]."""


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
    """Mean and standard deviation of continuous actions, for `Gaussian`.

    Args:
        action_shape: shape of one action; an int n means (n,).
        initial_log_std: initial log standard deviation of every dimension; 0 is a standard
            deviation of 1.
        state_dependent: whether the network also computes the deviation, which is then close to the initial
            one at first. Otherwise it is learned, but the same in all states (Schulman et al. 2017).

    Attributes:
        log_std: the parameter, `[*action_shape]`; None with `state_dependent`.
    """

    def __init__(
        self,
        action_shape: int | Sequence[int],
        initial_log_std: float,
        *,
        state_dependent: bool = False,
    ) -> None:
        shape = shape_of(action_shape, "action_shape")
        n = math.prod(shape)
        super().__init__(2 * n if state_dependent else n, n)
        self.action_shape = shape
        self.initial_log_std = float(initial_log_std)
        self.log_std: nn.Parameter | None = None
        if not state_dependent:
            # A logarithm, so that any value is valid.
            self.log_std = nn.Parameter(torch.full(shape, self.initial_log_std))

    def params(self, outputs: Tensor) -> GaussianParams:
        """Return mean `[..., *action_shape]`, and log_std `[*action_shape]` or of the mean's shape."""
        # For scalar actions this drops the last dimension.
        shape = (*outputs.shape[:-1], *self.action_shape)
        if self.log_std is not None:
            return GaussianParams(outputs.reshape(shape), self.log_std)
        mean, log_std = outputs.tensor_split(2, dim=-1)
        return GaussianParams(mean.reshape(shape), log_std.reshape(shape) + self.initial_log_std)

    def inputs_of(self, action: Tensor) -> Tensor:
        """Flatten actions `[T, N, *action_shape]` to [T, N, n_inputs]."""
        return action.reshape(*action.shape[:2], -1)
