"""Fully connected layers, forwards and backwards, in buffers that are allocated once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

# With fewer columns than this, products of BLAS take up to several times as long as those with a transposed
# result, whose columns fill the registers.
_FEW_INPUTS, _FEW_OUTPUTS = 32, 16
# Numbers in the input of a last layer from which on that is worth a copy of the result.
_MANY = 16_384
# Up to so many units and inputs, calls of PyTorch take longer than its products save.
_NARROW, _NARROW_INPUTS = 128, 512


class FlatNetwork:
    """Fully connected layers: views of the flat arrays, and buffers that grow with the minibatches.

    Args:
        layers: (weight, bias) of each layer, and the same of their gradients.
        compiled: the module of compiled functions.
        activation: after each hidden layer.
        is_trunk: whether the last layer is a hidden one, too.
        has_trunk: whether the gradient of the input is needed.
    """

    def __init__(
        self,
        layers: Sequence[list[tuple[Tensor, Tensor]]],
        compiled: Any,
        activation: str,
        is_trunk: bool = False,
        has_trunk: bool = False,
    ) -> None:
        self.layers, self.gradients = layers
        self.n_hidden = len(self.layers) - (not is_trunk)
        self.is_tanh = tanh = activation == "tanh"
        # As the models do; numpy takes a seventh of PyTorch's time.
        self.activate: Any = np.tanh if tanh else compiled.rectify
        self.slope: Any = compiled.scale_by_tanh_slope if tanh else compiled.scale_by_relu_slope
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self._narrow = self._narrow_passes(has_trunk)

    def reserve(self, n: int) -> bool:
        """Make buffers for n steps. Returns whether they are new."""
        if self._buffers and len(self._buffers[0][0]) >= n:
            return False
        sizes = [len(bias) for _, bias in self.layers]
        self._buffers = [(torch.empty(n, size), torch.empty(n, size)) for size in sizes]
        return True

    def views(self, n: int) -> FlatPass:
        """Return views of the buffers for n steps."""
        buffers = [(output[:n], gradient[:n]) for output, gradient in self._buffers]
        if self._narrow is None:
            return WidePass(self, buffers)
        return NarrowPass(self, buffers, self._narrow)

    def _narrow_passes(self, has_trunk: bool) -> Any:
        """Return the module of compiled passes, or None if PyTorch has to multiply, or does it faster."""
        units = [len(bias) for _, bias in self.layers[: self.n_hidden]]
        n_inputs = self.layers[0][0].shape[1]
        if not units or max(units) > _NARROW or n_inputs > _NARROW_INPUTS:
            return None
        # numba takes a third of a second to import.
        from parllel.algos import compiled_networks
        from parllel.arrays.compiled_products import COLUMNS

        columns = [*units, n_inputs] if has_trunk else units
        return None if any(n % COLUMNS for n in columns) else compiled_networks


class FlatPass(ABC):
    """A network at work on n steps.

    Attributes:
        outputs, gradients: of each layer, after its activation. The gradient of the last output is for others
            to write.
    """

    def __init__(self, buffers: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.outputs = [output for output, _ in buffers]
        self.gradients = [gradient for _, gradient in buffers]

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs of all layers, and return the last."""

    @abstractmethod
    def backward(self, x: Tensor, below: Tensor | None, *, add: bool = False) -> None:
        """Compute the gradients of all layers, from the gradient of the last output.

        x: the input of `forward`.  below: where to write the gradient of that input, or with `add`, where to
        add it; None if nobody needs it.
        """


class NarrowPass(FlatPass):
    """Compiled: one call for all layers."""

    def __init__(
        self, network: FlatNetwork, buffers: Sequence[tuple[Tensor, Tensor]], compiled: Any
    ) -> None:
        super().__init__(buffers)
        self._compiled = compiled
        rows, sizes = [], [0]
        self._held: list[Tensor] = []  # as the table has only their addresses
        for pair, gradients, buffer in zip(network.layers, network.gradients, buffers, strict=True):
            n_out, n_in = pair[0].shape
            scratch = torch.empty(n_in, n_out), torch.empty(n_out)
            tensors = [*pair, *gradients, *buffer, *scratch]
            self._held += tensors
            rows.append([n_in, n_out, *(tensor.data_ptr() for tensor in tensors)])
            sizes += n_in, n_out
        self._settings = np.array(rows, np.int64), network.n_hidden, network.is_tanh
        self._zeros = np.zeros(max(sizes), np.float32)
        self._nowhere = np.zeros((0, 0), np.float32)

    def forward(self, x: Tensor) -> Tensor:
        """As every pass."""
        self._compiled.forward(x.numpy(), *self._settings)
        return self.outputs[-1]

    def backward(self, x: Tensor, below: Tensor | None, *, add: bool = False) -> None:
        """As every pass."""
        target = self._nowhere if below is None else below.numpy()
        self._compiled.backward(x.numpy(), *self._settings, self._zeros, target, add)


class WidePass(FlatPass):
    """With PyTorch's products of matrices."""

    def __init__(self, network: FlatNetwork, buffers: Sequence[tuple[Tensor, Tensor]]) -> None:
        super().__init__(buffers)
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
            _BackwardLayer(self, network, i, is_hidden[i]) for i in reversed(range(len(buffers)))
        ]

    def forward(self, x: Tensor) -> Tensor:
        """As every pass."""
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
        """As every pass."""
        for layer in self._backward:
            gradient = layer.gradient
            if layer.hidden is None:
                torch.sum(gradient, 0, out=layer.grad_bias)
            else:
                self._slope(*layer.hidden)
            if layer.grad_transposed is None:
                torch.mm(
                    layer.transposed,
                    x if layer.input is None else layer.input,
                    out=layer.grad_weight,
                )
            else:
                transposed = x.t() if layer.input_transposed is None else layer.input_transposed
                torch.mm(transposed, gradient, out=layer.grad_transposed)
                layer.grad_weight.copy_(layer.grad_transposed.t())
            if layer.below is not None:
                torch.mm(gradient, layer.weight, out=layer.below)
        if below is not None:
            if add:
                below.addmm_(gradient, layer.weight)
            else:
                torch.mm(gradient, layer.weight, out=below)


class _BackwardLayer:
    """Views for the backward pass of layer `i`."""

    def __init__(self, at: WidePass, network: FlatNetwork, i: int, is_hidden: bool) -> None:
        self.weight = network.layers[i][0]
        self.grad_weight, self.grad_bias = network.gradients[i]
        self.gradient = at.gradients[i]
        self.transposed = self.gradient.t()
        n_outputs, n_inputs = self.weight.shape
        self.grad_transposed: Tensor | None = None
        if 1 < n_inputs < _FEW_INPUTS:
            self.grad_transposed = torch.empty(n_inputs, n_outputs)
        # None if they are given to each pass, and if nobody needs the gradient.
        self.input = self.input_transposed = self.below = None
        if i:
            self.input, self.below = at.outputs[i - 1], at.gradients[i - 1]
            self.input_transposed = self.input.t()
        # Arguments of the slope.
        self.hidden: tuple[NDArray[Any], ...] | None = None
        if is_hidden:
            arrays = [one.numpy() for one in (self.gradient, at.outputs[i], self.grad_bias)]
            self.hidden = (*arrays, np.empty(n_outputs))


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
