"""Fully connected layers, and a trunk of them that several networks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.torch.models.initial_weights import orthogonal_layer, uniform_layer

# As in the PPO implementations that results are compared with (Huang et al. 2022, detail 2). It suits both.
HIDDEN_GAIN = math.sqrt(2)
Activation: TypeAlias = Literal["tanh", "relu"]


class MlpModel(nn.Module):
    """Fully connected network that maps observations [N, ...] to [N, output_size].

    Dimensions after the first are flattened, and integers cast to the type of the weights. Weights
    are orthogonal (Saxe et al. 2014) with gain sqrt(2) in hidden layers, biases zero; or both as PyTorch's
    `nn.Linear` draws them.

    Args:
        input_size: number of elements in one observation.
        hidden_sizes: number of units in each hidden layer; empty for a linear map.
        output_size: number of elements in the output.
        output_gain: gain of the last layer. None for PyTorch's defaults in all layers.
        generator: generator that draws the weights; torch's global generator is not used.
        activation: activation after each hidden layer.

    Raises:
        ValueError: if a size is less than one, or for an unknown activation.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        output_size: int,
        *,
        output_gain: float | None,
        generator: torch.Generator,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        sizes = [input_size, *hidden_sizes, output_size]
        gains = None if output_gain is None else [*(HIDDEN_GAIN for _ in hidden_sizes), output_gain]
        self.activation = _known(activation, "MlpModel")
        self.layers = _layers(sizes, gains, generator, "MlpModel")

    def forward(self, observation: Tensor) -> Tensor:
        """Return [N, output_size]."""
        *hidden, last = cast(list[nn.Linear], list(self.layers))
        x = _as_inputs(observation, last.weight.dtype)
        activate_ = ACTIVATIONS[self.activation]
        # Calling the functions avoids the overhead of the modules, a tenth of a small step.
        for layer in hidden:
            x = activate_(functional.linear(x, layer.weight, layer.bias))
        return functional.linear(x, last.weight, last.bias)


class MlpEncoder(nn.Module):
    """Hidden layers that policy and value share, as the trunk of a `PgModel`: features [N, n_features].

    The gradients of both reach the shared layers, so `value_loss_coeff` matters more than with
    separate layers.

    Args:
        input_size: number of elements in one observation; dimensions after the first are flattened.
        hidden_sizes: number of units in each layer; the last number is `n_features`.
        generator: generator that draws the weights.
        activation: activation after every layer.

    Raises:
        ValueError: if there are no layers or a size is less than one, or for an unknown activation.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        *,
        generator: torch.Generator,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__()
        if not hidden_sizes:
            raise ValueError("MlpEncoder: hidden_sizes: expected at least one layer, got none")
        self.n_features = int(hidden_sizes[-1])
        self.activation = _known(activation, "MlpEncoder")
        gains = [HIDDEN_GAIN for _ in hidden_sizes]
        self.layers = _layers([input_size, *hidden_sizes], gains, generator, "MlpEncoder")

    def forward(self, observation: Tensor) -> Tensor:
        """Return the features."""
        layers = cast(list[nn.Linear], list(self.layers))
        x = _as_inputs(observation, layers[0].weight.dtype)
        activate_ = ACTIVATIONS[self.activation]
        for layer in layers:
            x = activate_(functional.linear(x, layer.weight, layer.bias))
        return x


def _layers(
    sizes: Sequence[int], gains: Sequence[float] | None, generator: torch.Generator, who: str
) -> nn.ModuleList:
    if min(sizes) < 1:
        raise ValueError(f"{who}: every size must be at least 1, got {list(sizes)}")
    if gains is None:
        return nn.ModuleList(uniform_layer(*each, generator) for each in pairwise(sizes))
    return nn.ModuleList(
        orthogonal_layer(nn.Linear, n_inputs, n_outputs, gain=gain, generator=generator)
        for (n_inputs, n_outputs), gain in zip(pairwise(sizes), gains, strict=True)
    )


def _as_inputs(observation: Tensor, dtype: torch.dtype) -> Tensor:
    """Flatten observations to [N, size], in the dtype of the weights."""
    # Skipped if not needed: even a no-op call into torch costs a microsecond.
    if observation.dim() != 2:
        observation = observation.reshape(observation.shape[0], -1)
    return observation if observation.dtype == dtype else observation.to(dtype)


def _known(activation: Activation, who: str) -> Activation:
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"{who}: activation: expected one of {list(ACTIVATIONS)}, got {activation!r}"
        )
    return activation


def tanh_(x: Tensor) -> Tensor:
    """Replace `x` by its hyperbolic tangent and return it; gradients of any order flow through.

    Computed by numpy where possible: on a CPU, with 512 x 64 numbers, it takes a seventh of torch's time.
    Elsewhere (other devices, bfloat16, `torch.func`, compiled, traced or exported models) by torch.
    """
    # A trace records only torch operations: numpy's result would become a constant.
    if torch.compiler.is_compiling() or torch._C._get_tracing_state():
        return x.tanh_()
    try:
        # Shares the memory of `x`. In a try, because there is no list of tensors that numpy cannot view.
        array = x.detach().numpy()
    except (TypeError, RuntimeError):
        return x.tanh_()
    if x.requires_grad:
        y: Tensor = _Tanh.apply(x, array)  # type: ignore[no-untyped-call]
        return y
    np.tanh(array, out=array)
    return x


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, array: Any) -> Tensor:
        np.tanh(array, out=array)
        # Tells autograd that `x` was overwritten, since another operation may have saved it.
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (y,) = ctx.saved_tensors
        # From the output, 1 - y^2, because the input is gone. Differentiable itself.
        return torch.ops.aten.tanh_backward(gradients[0], y), None


# Each replaces its argument.
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"tanh": tanh_, "relu": torch.relu_}
