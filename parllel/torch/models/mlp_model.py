"""Fully connected layers with tanh between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.torch.models.orthogonal import orthogonal_layer
from parllel.torch.models.tanh import tanh_

# As in the implementations of PPO that results are compared with (Huang et al. 2022, detail 2).
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
        # Each call into torch that changes nothing would still cost a microsecond.
        if x.dim() != 2:
            x = x.reshape(x.shape[0], -1)
        if x.dtype != weight.dtype:
            x = x.to(weight.dtype)
        # Calling the functions saves the modules' own overhead, a tenth of a small step.
        for layer in hidden:
            x = tanh_(functional.linear(x, layer.weight, layer.bias))
        return functional.linear(x, weight, last.bias)
