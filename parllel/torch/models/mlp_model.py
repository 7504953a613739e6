"""Fully connected layers with tanh between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.torch.models.orthogonal import orthogonal_layer

# As in the PPO implementations that results are compared with (Huang et al. 2022, detail 2).
HIDDEN_GAIN = math.sqrt(2)


class MlpModel(nn.Module):
    """Map observations [N, ...] to [N, output_size].

    Dimensions after the first are flattened, and integers cast to the type of the weights. Weights
    are orthogonal (Saxe et al. 2014) with gain sqrt(2) in hidden layers, biases zero.

    Args:
        input_size: numbers in one observation.
        hidden_sizes: units of each hidden layer; empty for a linear map.
        output_size: numbers in the output.
        output_gain: gain of the last layer.
        generator: draws the weights; torch's global generator is not touched.

    Raises:
        ValueError: if a size is less than one.
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        output_size: int,
        *,
        output_gain: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        sizes = [input_size, *hidden_sizes, output_size]
        if min(sizes) < 1:
            raise ValueError(f"MlpModel: every size must be at least 1, got {sizes}")
        self.layers = nn.ModuleList()
        for i, (n_inputs, n_outputs) in enumerate(pairwise(sizes)):
            gain = output_gain if i == len(hidden_sizes) else HIDDEN_GAIN
            layer = orthogonal_layer(nn.Linear, n_inputs, n_outputs, gain=gain, generator=generator)
            self.layers.append(layer)

    def forward(self, observation: Tensor) -> Tensor:
        """Return [N, output_size]."""
        *hidden, last = cast(list[nn.Linear], list(self.layers))
        weight, x = last.weight, observation
        # Skipped if not needed: even a no-op call into torch costs a microsecond.
        if x.dim() != 2:
            x = x.reshape(x.shape[0], -1)
        if x.dtype != weight.dtype:
            x = x.to(weight.dtype)
        # Calling the functions avoids the overhead of the modules, a tenth of a small step.
        for layer in hidden:
            x = tanh_(functional.linear(x, layer.weight, layer.bias))
        return functional.linear(x, weight, last.bias)


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
