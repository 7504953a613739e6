"""Fully connected layers, forwards and backwards, in buffers that are allocated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

# With fewer columns than this, products of BLAS take up to several times as long as those with a transposed
# result, whose columns fill the registers.
_FEW_INPUTS, _FEW_OUTPUTS = 32, 16
# Numbers in the input of a last layer from which on that is worth a copy of the result.
_MANY = 16_384


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
        self.is_tanh = tanh = activation == "tanh"
        # As the models do; numpy takes a seventh of PyTorch's time.
        self.activate: Any = np.tanh if tanh else compiled.rectify
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
        is_hidden = [i < network.n_hidden for i in range(len(buffers))]
        weights = [weight for weight, _ in network.layers]
        biases = [bias for _, bias in network.layers]
        self._forward = [
            (bias, weight.t(), output, output.numpy() if hidden else None)
            for bias, weight, output, hidden in zip(
                biases, weights, self.outputs, is_hidden, strict=True
            )
        ]
        self._last: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        n_outputs, n_inputs = weights[-1].shape
        n = len(self.outputs[-1])
        if not is_hidden[-1] and 1 < n_outputs < _FEW_OUTPUTS and n * n_inputs >= _MANY:
            transposed = torch.empty(n_outputs, n)
            self._last = biases[-1][:, None], weights[-1], transposed, self.outputs[-1]
            del self._forward[-1]
        # From the last layer to the first.
        self._backward = [
            _BackwardLayer(
                gradient=self.gradients[i],
                output=self.outputs[i].reshape(-1).numpy() if is_hidden[i] else None,
                grad_weight=network.gradients[i][0],
                grad_bias=network.gradients[i][1],
                transposed=_transposed(weights[i]),
                weight=weights[i],
                below=self.gradients[i - 1] if i else None,
            )
            for i in reversed(range(len(buffers)))
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs of all layers, and return the last."""
        for bias, transposed, output, hidden in self._forward:
            torch.addmm(bias, x, transposed, out=output)
            if hidden is not None:
                self._activate(hidden, hidden)
            x = output
        if self._last is not None:
            bias, weight, transposed, output = self._last
            torch.addmm(bias, weight, x.t(), out=transposed)
            x = output.copy_(transposed.t())
        return x

    def backward(self, x: Tensor, below: Tensor | None, *, add: bool = False) -> None:
        """Compute the gradients of all layers, from the gradient of the last output.

        x: the input of `forward`.  below: where to write the gradient of that input, or with `add`, where to
        add it; None if nobody needs it.
        """
        inputs = [*reversed(self.outputs[:-1]), x]
        for source, layer in zip(inputs, self._backward, strict=True):
            gradient = layer.gradient
            if layer.output is not None:
                self._slope(gradient.view(-1).numpy(), layer.output)
            if layer.transposed is None:
                torch.mm(gradient.t(), source, out=layer.grad_weight)
            else:
                torch.mm(source.t(), gradient, out=layer.transposed)
                layer.grad_weight.copy_(layer.transposed.t())
            torch.sum(gradient, 0, out=layer.grad_bias)
            if layer.below is not None:
                torch.mm(gradient, layer.weight, out=layer.below)
        if below is not None:
            if add:
                below.addmm_(gradient, layer.weight)
            else:
                torch.mm(gradient, layer.weight, out=below)


class _BackwardLayer(NamedTuple):
    gradient: Tensor
    output: NDArray[np.float32] | None  # of a hidden layer
    grad_weight: Tensor
    grad_bias: Tensor
    transposed: Tensor | None
    weight: Tensor
    below: Tensor | None


def _transposed(weight: Tensor) -> Tensor | None:
    """Return a buffer for the transposed gradient of a weight; None if it is computed as it is."""
    n_outputs, n_inputs = weight.shape
    return torch.empty(n_inputs, n_outputs) if 1 < n_inputs < _FEW_INPUTS else None


def flat_layers(
    network: Any, places: Mapping[int, tuple[Tensor, ...]], used: set[int], who: str
) -> list[list[tuple[Tensor, Tensor]]]:
    """Return (weight, bias) of each layer in the flat parameters, and the same in the flat gradients.

    places: views of each parameter's values and gradients, by its identity.  used: identities of parameters
    of other layers, to which this function adds.  who: named in errors.

    Raises:
        ValueError: if layers share parameters or have no bias.
    """
    found = []
    for number, layer in enumerate(network.layers):
        views = []
        for kind in ("weight", "bias") if isinstance(layer, nn.Linear) else ():
            parameter = getattr(layer, kind)
            if id(parameter) not in places or id(parameter) in used:
                raise ValueError(
                    f"{who}: {type(network).__name__}, layer {number}: expected a {kind} of this layer only"
                )
            used.add(id(parameter))
            views.append(places[id(parameter)])
        found.append(list(zip(*views, strict=True)))
    return [[(weight, bias) for weight, bias in part] for part in zip(*found, strict=True)]
