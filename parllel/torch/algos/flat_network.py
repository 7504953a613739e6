"""Fully connected layers, forwards and backwards, in buffers that are allocated once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

# (x [n, inputs], weight [outputs, inputs], bias or None) -> x W^T + b
Linear: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]
# Multiplications in a product from which on `wide_linear` is faster; fixed, so that results do not depend on
# the load of the machine.
_LEAST_AMOUNT = 2**20
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
        linear: see `wide_linear`.
    """

    def __init__(
        self,
        layers: Sequence[list[tuple[Tensor, Tensor]]],
        compiled: Any,
        activation: str,
        is_trunk: bool,
        linear: Linear | None,
    ) -> None:
        self.linear: Any = linear
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
        self._linear = network.linear
        is_hidden = [i < network.n_hidden for i in range(len(buffers))]
        weights = [weight for weight, _ in network.layers]
        biases = [bias for _, bias in network.layers]
        # How much arithmetic a product of each layer is.
        amounts = [len(self.outputs[0]) * weight.numel() for weight in weights]
        wide = [self._linear is not None and amount >= _LEAST_AMOUNT for amount in amounts]
        self._forward = [
            (bias, weight, weight.t(), output, hidden and output.numpy(), hidden and fast)
            for bias, weight, output, hidden, fast in zip(
                biases, weights, self.outputs, is_hidden, wide, strict=True
            )
        ]
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
                wide=wide[i],
                # Both factors are transposed, which costs a copy of each.
                wide_weight=wide[i]
                and amounts[i] >= 4 * _LEAST_AMOUNT
                and min(weights[i].shape) >= 64,
            )
            for i in reversed(range(len(buffers)))
        ]

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs of all layers, and return the last."""
        for bias, weight, transposed, output, hidden, wide in self._forward:
            if wide:
                # The activation copies the result to its buffer.
                self._activate(self._linear(x, weight, bias).numpy(), hidden)
            else:
                torch.addmm(bias, x, transposed, out=output)
                if hidden is not False:
                    self._activate(hidden, hidden)
            x = output
        return x

    def backward(self, x: Tensor, below: Tensor | None, *, add: bool = False) -> None:
        """Compute the gradients of all layers, from the gradient of the last output.

        x: the input of `forward`.  below: where to write the gradient of that input, or with `add`, where to
        add it; None if nobody needs it.
        """
        inputs = [*reversed(self.outputs[:-1]), x]
        fresh: Tensor | None = None
        for source, layer in zip(inputs, self._backward, strict=True):
            gradient = layer.gradient if fresh is None else fresh
            if layer.output is not None:
                self._slope(gradient.view(-1).numpy(), layer.output)
            if layer.wide_weight:
                layer.grad_weight.copy_(self._linear(gradient.t(), source.t(), None))
            elif layer.transposed is None:
                torch.mm(gradient.t(), source, out=layer.grad_weight)
            else:
                torch.mm(source.t(), gradient, out=layer.transposed)
                layer.grad_weight.copy_(layer.transposed.t())
            torch.sum(gradient, 0, out=layer.grad_bias)
            if layer.below is None:
                continue
            fresh = None
            if layer.wide:
                fresh = self._linear(gradient, layer.weight.t(), None)
            else:
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
    wide: bool
    wide_weight: bool


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


def wide_linear() -> Linear | None:
    """Return oneDNN's x W^T + b if it is faster than MKL's, which PyTorch calls; otherwise None.

    MKL leaves half of the registers of AMD's processors with AVX-512 unused.
    """
    backends: Any = torch.backends
    if backends.cpu.get_cpu_capability() != "AVX512" or not backends.mkl.is_available():
        return None
    if not _is_amd():
        return None
    try:
        # What PyTorch's compiler calls for a layer.
        linear = torch.ops.mkldnn._linear_pointwise.default
    except AttributeError:
        return None
    return lambda x, weight, bias: linear(x, weight, bias, "none", [], "")


def _is_amd() -> bool:
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
