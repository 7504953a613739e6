"""PPO updates of known networks, with a backward pass that is written out and allocates nothing.

    batch        parameters: model -> flat array at the start, and back at the end
    epoch        the batch in shuffled order -> buffers, once
    minibatch    slices of the buffers -> outputs of the networks -> compiled loss and its gradients
                 -> gradients of all layers, in one flat array -> compiled Adam

With small networks, autograd spends more time on its bookkeeping than on arithmetic. Matrix products are
PyTorch's, loops over steps are compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.algos.flat_adam import FlatAdam
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.known_models import choices_of, features_of, sizes_of

# Minibatches whose views are kept. With invalid steps, their sizes differ from batch to batch.
_KEPT = 64
_STEPS = ("log_prob", "value", "advantage", "return_")


class FlatUpdate:
    """Losses and gradients of an agent that `known_agent` accepts.

    Args:
        agent: its model's parameters are those of `adam`, in the same order.
        adam: holds parameters and gradients.

    Raises:
        ValueError: if layers share parameters or have no bias.
    """

    def __init__(self, agent: Any, adam: FlatAdam) -> None:
        # numba takes a third of a second to import.
        from parllel.algos import compiled_updates

        self._compiled: Any = compiled_updates
        self.adam = adam
        names = [name for name, _ in agent.model.named_parameters()]
        # A parameter that two layers share has only one name, and a layer without a bias one less.
        for path, module in agent.model.named_modules(remove_duplicate=False):
            for kind in ("weight", "bias") if isinstance(module, nn.Linear) else ():
                if f"{path}.{kind}" not in names:
                    raise ValueError(
                        f"PPO: update='flat': {path}: expected a {kind} of this layer only"
                    )
        tensors = [
            dict(zip(names, map(torch.from_numpy, views), strict=True))
            for views in (adam.parameter_views, adam.split(adam.gradients))
        ]
        self._encode, trunk = features_of(agent.model)
        model = agent.model
        shared = [] if trunk is None else [("encoder", trunk.activation, True)]
        # In the order of the forward pass. Each but the first has the trunk's features as its input, if there
        # is a trunk.
        self._networks = [
            _Network([_layers(some, f"{name}.layers") for some in tensors], compiled_updates, *kind)
            for name, *kind in (
                *shared,
                ("policy", model.policy.activation, False),
                ("critic", model.critic.activation, False),
            )
        ]
        choices, n_outputs = choices_of(agent.distribution), sizes_of(agent.model.policy)[-1]
        self._choices = None if choices is None else np.array(choices, np.int64)
        self._scratch = np.zeros(n_outputs if choices is None else (2, n_outputs))
        self._log_std: list[NDArray[np.float32]] = []
        if choices is None:
            self._log_std = [some["head.log_std"].reshape(1, -1).numpy() for some in tensors]
        self._sums = np.zeros(compiled_updates.N_SUMS)
        self._batch: dict[str, Tensor] = {}
        self._epoch: dict[str, Tensor] = {}
        self._minibatches: dict[tuple[int, int], _Minibatch] = {}

    def check(self, inputs: PpoInputs) -> None:
        """Raise TypeError if this class cannot learn from a batch."""
        who, observation = "PPO: update='flat'", inputs.agent.get("observation")
        is_array = isinstance(observation, Tensor)
        if list(inputs.agent) != ["observation"] or not (is_array or self._encode is not None):
            raise TypeError(
                f"{who}: expected one array of observations as the model's input, got {list(inputs.agent)}"
            )
        if (self._choices is None) != inputs.action.is_floating_point():
            raise TypeError(f"{who}: agent.action: got {inputs.action.dtype}")
        for name in ("weight", *_STEPS, *(["action"] if self._choices is None else [])):
            field = getattr(inputs, name)
            if field is not None and field.dtype != torch.float32:
                raise TypeError(f"{who}: {name}: expected float32, got {field.dtype}")

    def load(self, inputs: PpoInputs) -> None:
        """Set the batch. Nothing is copied unless a dtype has to be converted."""
        n = len(inputs.return_)
        observation: Any = inputs.agent["observation"]
        if self._encode is not None:
            # Once for all epochs, as nothing in it is learned.
            with torch.no_grad():
                observation = self._encode(observation)
        action = inputs.action if self._choices is None else inputs.action.long()
        batch = {
            # As the model casts integers and float64.
            "observation": observation.reshape(n, -1).to(torch.float32),
            "action": action.reshape(n, -1),
            **{name: getattr(inputs, name) for name in _STEPS},
        }
        if inputs.weight is not None:
            batch["weight"] = inputs.weight
        if batch.keys() != self._batch.keys():
            self._minibatches.clear()
        self._batch = batch

    def shuffle(self, order: Tensor) -> None:
        """Copy the steps at `order`, int64 [n], to the buffers of an epoch."""
        for name, field in self._batch.items():
            buffer = self._epoch.get(name)
            if buffer is None or len(buffer) < len(field) or buffer.shape[1:] != field.shape[1:]:
                # For a whole batch, since the number of valid steps differs from batch to batch.
                self._epoch[name] = torch.empty(field.shape, dtype=field.dtype)
                self._minibatches.clear()
            torch.index_select(field, 0, order, out=self._epoch[name][: len(order)])

    def loss(self, start: int, stop: int, coefficients: NDArray[np.float64]) -> dict[str, float]:
        """Compute the loss of steps [start, stop) of the epoch, and return its terms.

        `backward` needs what this leaves in the buffers.

        coefficients: ratio_clip, value_clip (inf for none), value_loss_coeff, entropy_loss_coeff.

        Raises:
            ValueError: for an action that is not one of the distribution's.
        """
        at = self._minibatches.get((start, stop))
        if at is None:
            at = self._minibatches[start, stop] = self._minibatch(start, stop)
        self._current = at
        x = at.observation
        for one in at.trunk:
            x = one.forward(x)
        for one in at.heads:
            one.forward(x)
        (outputs, grad_outputs), (values, grad_values) = at.outputs
        settings = (*at.steps, coefficients, grad_outputs)
        if self._choices is None:
            log_std, grad_log_std = self._log_std
            self._compiled.ppo_gaussian(
                *(outputs, log_std, values, at.action, *settings, grad_log_std, grad_values),
                *(self._sums, self._scratch),
            )
        else:
            bad = self._compiled.ppo_categorical(
                *(outputs, values, self._choices, at.action, *settings, grad_values),
                *(self._sums, self._scratch),
            )
            if bad >= 0:
                raise ValueError(
                    f"PPO: agent.action: expected actions below {self._choices.sum(axis=0).tolist()} and at "
                    f"least {self._choices[1].tolist()}, got {at.action[bad].tolist()}"
                )
        c, (policy, value, entropy, kl, clipped, n) = coefficients, self._sums.tolist()
        return {
            "loss": (-policy + c[2] * value - c[3] * entropy) / n,
            "policy_loss": -policy / n,
            "value_loss": value / n,
            "entropy": entropy / n,
            "approx_kl": kl / n,
            "clip_fraction": clipped / n,
        }

    def backward(self) -> None:
        """Write the gradients of the last loss to `adam.gradients`."""
        at = self._current
        if not at.trunk:
            for one in at.heads:
                one.backward(at.observation, None)
            return
        (trunk,) = at.trunk
        for number, one in enumerate(at.heads):
            # The features' gradient is the sum over both networks.
            one.backward(trunk.outputs[-1], trunk.gradients[-1], add=number > 0)
        trunk.backward(at.observation, None)

    def _minibatch(self, start: int, stop: int) -> _Minibatch:
        if len(self._minibatches) >= _KEPT:
            self._minibatches.clear()
        cut = {name: field[start:stop] for name, field in self._epoch.items()}
        for network in self._networks:
            # Views of smaller buffers would be left behind.
            if network.reserve(stop - start):
                self._minibatches.clear()
        return _Minibatch(cut, [network.views(stop - start) for network in self._networks])


class _Minibatch:
    """Views of the buffers for one slice of an epoch, made once since they take as long as a product."""

    def __init__(self, cut: dict[str, Tensor], passes: Sequence[_Pass]) -> None:
        self.observation = cut["observation"]
        self.action = cut["action"].numpy()
        weight = cut.get("weight", torch.empty(0))
        self.steps = (*(cut[name].numpy() for name in _STEPS), weight.numpy())
        *self.trunk, policy_pass, critic_pass = passes
        self.heads = (policy_pass, critic_pass)
        policy, critic = [
            (one.outputs[-1].numpy(), one.gradients[-1].numpy()) for one in self.heads
        ]
        self.outputs = (policy, (critic[0].reshape(-1), critic[1].reshape(-1)))


class _Network:
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

    def views(self, n: int) -> _Pass:
        """Return views of the buffers for n steps."""
        return _Pass(self, [(output[:n], gradient[:n]) for output, gradient in self._buffers])


class _Pass:
    """A network at work on n steps.

    Attributes:
        outputs, gradients: of each layer, after its activation. The gradient of the last output is for others
            to write.
    """

    def __init__(self, network: _Network, buffers: Sequence[tuple[Tensor, Tensor]]) -> None:
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
            (gradient, gradient.t(), pair, *into, weight, under)
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
            gradient, transposed, hidden, grad_weight, grad_bias, weight, under = one
            if hidden is not None:
                output, slope = hidden
                self._slope(slope, output)
            torch.mm(transposed, source, out=grad_weight)
            torch.sum(gradient, 0, out=grad_bias)
            if under is not None:
                torch.mm(gradient, weight, out=under)
        if below is not None:
            if add:
                below.addmm_(gradient, weight)
            else:
                torch.mm(gradient, weight, out=below)


def _layers(tensors: dict[str, Tensor], prefix: str) -> list[tuple[Tensor, Tensor]]:
    n = sum(name.startswith(prefix) for name in tensors) // 2
    return [(tensors[f"{prefix}.{i}.weight"], tensors[f"{prefix}.{i}.bias"]) for i in range(n)]
