"""Fully connected layers, forwards and backwards, in buffers that are allocated once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

# For fewer inputs than this, products of BLAS are several times as fast if the result is transposed: its
# columns are then the units of the layer, which fill the registers.
_FEW_INPUTS = 32


class FlatNetwork:
    """Fully connected layers: views of the flat arrays, and buffers that grow with the minibatches.

    Args:
        layers: (weight, bias) of each layer, and the same of their gradients.
        compiled: the module of compiled functions.
        activation: after each hidden layer.
        is_trunk: whether the last layer is a hidden one, too.
    """

    def __init__(
        self,
        layers: Sequence[list[tuple[Tensor, Tensor]]],
        compiled: Any,
        activation: str,
        is_trunk: bool,
    ) -> None:
        self.layers, self.gradients = layers
        self.n_hidden = len(self.layers) - (not is_trunk)
        tanh = activation == "tanh"
        # As the models do; numpy takes a seventh of PyTorch's time.
        self.activate: Any = np.tanh if tanh else partial(np.maximum, 0)
        self.slope: Any = compiled.scale_by_tanh_slope if tanh else compiled.scale_by_relu_slope
        self._buffers: list[tuple[Tensor, Tensor]] = []

    def reserve(self, n: int) -> bool:
        """Make buffers for n steps. Returns whether they are new."""
        if self._buffers and len(self._buffers[0][0]) >= n:
            return False
        sizes = [len(bias) for _, bias in self.layers]
        self._buffers = [(torch.empty(n, size), torch.empty(n, size)) for size in sizes]
        return True

    def views(self, n: int) -> FlatPass:
        """Return views of the buffers for n steps."""
        return FlatPass(self, [(output[:n], gradient[:n]) for output, gradient in self._buffers])


class FlatPass:
    """A network at work on n steps.

    Attributes:
        outputs, gradients: of each layer, after its activation. The gradient of the last output is for others
            to write.
    """

    def __init__(self, network: FlatNetwork, buffers: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.outputs = [output for output, _ in buffers]
        self.gradients = [gradient for _, gradient in buffers]
        self._activate, self._slope = network.activate, network.slope
        # Views of hidden layers as arrays of one dimension; None for an output.
        flat: list[Any] = [
            [tensor.reshape(-1).numpy() for tensor in pair] if i < network.n_hidden else None
            for i, pair in enumerate(buffers)
        ]
        weights = [weight for weight, _ in network.layers]
        biases = [bias for _, bias in network.layers]
        self._forward = [
            (bias, weight.t(), output, pair and pair[0])
            for bias, weight, output, pair in zip(biases, weights, self.outputs, flat, strict=True)
        ]
        below = [None, *self.gradients[:-1]]
        parts = zip(self.gradients, flat, network.gradients, weights, below, strict=True)
        # From the last layer to the first.
        self._backward = [
            (gradient, gradient.t(), pair, *into, _transposed(into[0]), weight, under)
            for gradient, pair, into, weight, under in reversed(list(parts))
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs of all layers, and return the last."""
        for bias, weight, output, hidden in self._forward:
            torch.addmm(bias, x, weight, out=output)
            if hidden is not None:
                self._activate(hidden, out=hidden)
            x = output
        return x

    def backward(self, x: Tensor, below: Tensor | None, *, add: bool = False) -> None:
        """Compute the gradients of all layers, from the gradient of the last output.

        x: the input of `forward`.  below: where to write the gradient of that input, or with `add`, where to
        add it; None if nobody needs it.
        """
        inputs = [*reversed(self.outputs[:-1]), x]
        for source, one in zip(inputs, self._backward, strict=True):
            gradient, transposed, hidden, grad_weight, grad_bias, buffer, weight, under = one
            if hidden is not None:
                output, slope = hidden
                self._slope(slope, output)
            if buffer is None:
                torch.mm(transposed, source, out=grad_weight)
            else:
                torch.mm(source.t(), gradient, out=buffer)
                grad_weight.copy_(buffer.t())
            torch.sum(gradient, 0, out=grad_bias)
            if under is not None:
                torch.mm(gradient, weight, out=under)
        if below is not None:
            if add:
                below.addmm_(gradient, weight)
            else:
                torch.mm(gradient, weight, out=below)


def _transposed(weight: Tensor) -> Tensor | None:
    """Return a buffer for the transposed gradient of a weight; None if it is computed as it is."""
    n_outputs, n_inputs = weight.shape
    return torch.empty(n_inputs, n_outputs) if 1 < n_inputs < _FEW_INPUTS else None
