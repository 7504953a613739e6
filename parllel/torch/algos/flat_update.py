"""PPO updates of known networks, with a backward pass that is written out and allocates nothing.

    batch        parameters: model -> flat array at the start, and back at the end
    epoch        the batch in shuffled order -> buffers, once
    minibatch    slices of the buffers -> outputs of the networks -> compiled loss and its gradients
                 -> gradients of all layers, in one flat array -> compiled Adam

With small networks, autograd spends more time on its bookkeeping than on arithmetic. Loops over steps are
compiled, and so are networks with narrow layers (`NarrowPass`). Products of wide layers are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parllel.algos.flat_adam import FlatAdam
from parllel.buffers.paths import field_at
from parllel.torch.algos.flat_network import FlatNetwork, FlatPass, flat_layers
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.known_models import KnownGroup, choices_of, features_of
from parllel.types import Tree

_WHO = "PPO: update='flat'"
# Minibatches whose views are kept. With invalid steps, their sizes differ from batch to batch.
_KEPT = 64
_STEPS = ("log_prob", "value", "advantage", "return_")


class FlatUpdate:
    """Losses and gradients of the models that `known_groups` returns.

    Args:
        groups: the models. Their parameters are those of `adam`, in the same order.
        names: of all agents, in the order of the columns of a batch; empty for a single agent.
        adam: holds parameters and gradients.

    Raises:
        ValueError: if layers share parameters or have no bias.
    """

    def __init__(self, groups: Sequence[KnownGroup], names: Sequence[str], adam: FlatAdam) -> None:
        self.adam = adam
        parameters = [p for group in groups for p in group.model.parameters()]
        views = zip(adam.parameter_views, adam.split(adam.gradients), strict=True)
        # By identity: a parameter that two layers share has only one view.
        places = {
            id(parameter): tuple(map(torch.from_numpy, pair))
            for parameter, pair in zip(parameters, views, strict=True)
        }
        places_of = {name: place for place, name in enumerate(names)}
        self._names = tuple(names)
        self._groups = [
            _Group(group, [places_of[name] for name in group.names], places) for group in groups
        ]

    def check(self, inputs: PpoInputs) -> None:
        """Raise TypeError if this class cannot learn from a batch."""
        if list(inputs.agent) != ["observation"]:
            raise TypeError(
                f"{_WHO}: expected observations as the model's only input, got {list(inputs.agent)}"
            )
        if inputs.return_.dim() != 1 + (self._names != ()):
            raise TypeError(f"{_WHO}: expected steps, got sequences {list(inputs.return_.shape)}")
        for name in ("weight", *_STEPS):
            field = getattr(inputs, name)
            if field is not None and field.dtype != torch.float32:
                raise TypeError(f"{_WHO}: {name}: expected float32, got {field.dtype}")
        for group in self._groups:
            group.check(inputs)

    def fits(self, inputs: PpoInputs) -> bool:
        """Return whether `check` accepts a batch."""
        try:
            self.check(inputs)
        except TypeError:
            return False
        return True

    def load(self, inputs: PpoInputs, alive: Tensor | None = None) -> None:
        """Set the batch. Nothing of a single agent is copied unless a dtype has to be converted.

        alive: bool [N, K], or [N] for a single agent, steps that count; None for all.
        """
        for group in self._groups:
            group.load(inputs, alive)

    def shuffle(self, order: Tensor, ends: Sequence[int]) -> None:
        """Copy the steps at `order`, int64 [n], to the buffers of an epoch.

        ends: where in this order each minibatch ends.
        """
        bounds = list(pairwise((0, *ends)))
        for group in self._groups:
            group.shuffle(order, bounds)

    def loss(
        self, start: int, stop: int, coefficients: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Compute the loss of a minibatch, steps [start, stop) of the epoch.

        `backward` needs what this leaves in the buffers.

        coefficients: ratio_clip, value_clip (inf for none), value_loss_coeff, entropy_loss_coeff.

        Returns the loss and the sums of its terms by agent, [K, N_SUMS], as `compiled_loss`.

        Raises:
            ValueError: for an action that is not one of the distribution's.
        """
        for group in self._groups:
            group.use(start, stop)
        return self._loss(coefficients)

    def loss_of_batch(self, coefficients: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """As `loss`, of the whole batch, which is not copied. It must stay as it is until `backward`."""
        for group in self._groups:
            group.use_batch()
        return self._loss(coefficients)

    def _loss(self, coefficients: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        sums = np.empty((max(len(self._names), 1), 6))  # compiled_updates.N_SUMS
        losses = [group.loss(coefficients, sums) for group in self._groups]
        return sum(losses), sums

    def backward(self) -> None:
        """Write the gradients of the last loss to `adam.gradients`."""
        for group in self._groups:
            group.backward()


class _Group:
    """The networks of one model, and the steps of all agents that act with it.

    Rows of buffers are ordered by minibatch, then by agent, then by step: an agent's part of a minibatch is
    contiguous, and so is the whole minibatch.
    """

    def __init__(
        self,
        group: KnownGroup,
        columns: Sequence[int],
        places: Mapping[int, tuple[Tensor, ...]],
    ) -> None:
        # numba takes a third of a second to import.
        from parllel.algos import compiled_updates

        self._compiled: Any = compiled_updates
        self._known, self._columns = group, columns
        self._n_agents = max(len(columns), 1)
        model: Any = group.model
        self._encode, trunk = features_of(model)
        # In the order of the forward pass. Each but the first has the trunk's features as its input, if there
        # is a trunk.
        modules: list[Any] = [*([] if trunk is None else [trunk]), model.policy, model.critic]
        used: set[int] = set()
        self._networks = [
            FlatNetwork(
                flat_layers(module, places, used, _WHO),
                compiled_updates,
                module.activation,
                is_trunk=module is trunk,
                has_trunk=trunk is not None and module is not trunk,
            )
            for module in modules
        ]
        choices, head = choices_of(group.distribution), model.head
        self._choices = None if choices is None else np.array(choices, np.int64)
        self._scratch = np.zeros(head.n_inputs if choices is None else (2, head.n_outputs))
        # Those of all states; empty if they are outputs.
        self._log_std: list[NDArray[np.float32]] = []
        if choices is None and head.log_std is not None:
            self._log_std = [view.reshape(1, -1).numpy() for view in places[id(head.log_std)]]
        self._sums = np.zeros((self._n_agents, compiled_updates.N_SUMS))
        self._n_steps = 0
        self._batch: dict[str, Tensor] = {}
        self._epoch: dict[str, Tensor] = {}
        self._minibatches: dict[tuple[int, int], _Minibatch] = {}
        self._passes: dict[int, list[FlatPass]] = {}  # by the number of steps

    def check(self, inputs: PpoInputs) -> None:
        for observation, action in self._observations_and_actions(inputs):
            if not isinstance(observation, Tensor) and self._encode is None:
                raise TypeError(
                    f"{_WHO}: agent.observation: expected one array, got a {type(observation).__name__}"
                )
            floats = action.is_floating_point()
            if (self._choices is None) != floats or (floats and action.dtype != torch.float32):
                raise TypeError(f"{_WHO}: agent.action: got {action.dtype}")

    def load(self, inputs: PpoInputs, alive: Tensor | None) -> None:
        self._n_steps = len(inputs.return_)
        observations, actions = zip(*self._observations_and_actions(inputs), strict=True)
        shared, model = self._known.shared, self._known.model
        # Once for all epochs, as nothing in it is learned.
        with torch.no_grad():
            # One agent after the other.
            observation = observations[0] if shared is None else shared.with_ids(observations)
            if self._encode is not None:
                observation = self._encode(observation)
        action = actions[0] if shared is None else torch.cat(actions)
        n = len(action)
        batch = {
            # As the model casts integers and float64.
            "observation": observation.reshape(n, -1).to(torch.float32),
            "action": (action if self._choices is None else action.long()).reshape(n, -1),
            **{name: self._column(getattr(inputs, name)) for name in _STEPS},
        }
        if model.action_mask is not None:
            batch["allowed"] = model.allowed(observations[0])
        if inputs.weight is not None:
            batch["weight"] = self._column(inputs.weight)
        if alive is not None:
            batch["valid"] = self._column(alive)
        if batch.keys() != self._batch.keys():
            self._minibatches.clear()
        self._batch = batch

    def shuffle(self, order: Tensor, bounds: Sequence[tuple[int, int]]) -> None:
        if self._n_agents > 1:
            of_agents = [order + k * self._n_steps for k in range(self._n_agents)]
            order = torch.cat([part[start:stop] for start, stop in bounds for part in of_agents])
        for name, field in self._batch.items():
            buffer = self._epoch.get(name)
            if buffer is None or len(buffer) < len(field) or buffer.shape[1:] != field.shape[1:]:
                # For a whole batch, since the number of valid steps differs from batch to batch.
                self._epoch[name] = torch.empty(field.shape, dtype=field.dtype)
                self._minibatches.clear()
            torch.index_select(field, 0, order, out=self._epoch[name][: len(order)])

    def use_batch(self) -> None:
        """Take the batch as the minibatch. Its agents are in the order of the epoch's buffers."""
        batch = {name: field.contiguous() for name, field in self._batch.items()}
        self._current = _Minibatch(batch, self._passes_of(len(batch["action"])))

    def use(self, start: int, stop: int) -> None:
        """Take steps [start, stop) of the epoch as the minibatch."""
        at = self._minibatches.get((start, stop))
        if at is None:
            rows = slice(start * self._n_agents, stop * self._n_agents)
            cut = {name: field[rows] for name, field in self._epoch.items() if name in self._batch}
            at = _Minibatch(cut, self._passes_of(rows.stop - rows.start))
            if len(self._minibatches) >= _KEPT:
                self._minibatches.clear()
            self._minibatches[start, stop] = at
        self._current = at

    def loss(self, coefficients: NDArray[np.float64], sums: NDArray[np.float64]) -> float:
        """Return the loss of the minibatch, and write the sums of its terms to the agents' rows."""
        at = self._current
        x = at.observation
        for one in at.trunk:
            x = one.forward(x)
        for one in at.heads:
            one.forward(x)
        n = int(at.valid.sum()) if at.valid.size else len(at.action)
        # The mean of a minibatch without valid entries is 0 instead of 0 / 0.
        scale = 1 / max(n, 1)
        self._heads(at, coefficients, scale)
        sums[self._columns or slice(None)] = self._sums
        policy, value, entropy, *_ = self._sums.sum(axis=0).tolist()
        loss: float = -policy + coefficients[2] * value - coefficients[3] * entropy
        return loss * scale

    def backward(self) -> None:
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

    def _heads(self, at: _Minibatch, coefficients: NDArray[np.float64], scale: float) -> None:
        """Write sums, and gradients with respect to the outputs of the networks."""
        (outputs, grad_outputs), (values, grad_values) = at.outputs
        settings = (*at.steps, at.valid, coefficients, scale)
        if self._choices is None:
            D = len(self._scratch)
            # The network's outputs are means, and deviations if they depend on the state.
            mean, grad_mean = outputs[:, :D], grad_outputs[:, :D]
            log_std, grad_log_std = self._log_std or (outputs[:, D:], grad_outputs[:, D:])
            if not self._log_std:
                log_std += self._known.model.head.initial_log_std  # type: ignore[operator]
            self._compiled.ppo_gaussian(
                *(mean, log_std, values, at.action, *settings, grad_mean, grad_log_std),
                *(grad_values, self._sums, self._scratch),
            )
            return
        bad = self._compiled.ppo_categorical(
            *(outputs, at.allowed, values, self._choices, at.action, *settings, grad_outputs),
            *(grad_values, self._sums, self._scratch),
        )
        if bad >= 0:
            raise ValueError(
                f"PPO: agent.action: expected actions below {self._choices.sum(axis=0).tolist()} and at "
                f"least {self._choices[1].tolist()}, got {at.action[bad].tolist()}"
            )

    def _observations_and_actions(self, inputs: PpoInputs) -> list[tuple[Tree, Any]]:
        pair = (inputs.agent["observation"], inputs.action)
        if not self._known.names:
            return [pair]
        return [(field_at(pair[0], name), field_at(pair[1], name)) for name in self._known.names]

    def _column(self, field: Tensor) -> Tensor:
        """Return the steps [K * N] of the agents of this group, from [N, agents] or [N]."""
        return field[:, self._columns].t().reshape(-1) if self._columns else field

    def _passes_of(self, n: int) -> list[FlatPass]:
        passes = self._passes.get(n)
        if passes is None:
            grown = [network.reserve(n) for network in self._networks]
            # Views of smaller buffers would be left behind.
            if any(grown) or len(self._passes) >= _KEPT:
                self._passes.clear()
                self._minibatches.clear()
            passes = self._passes[n] = [network.views(n) for network in self._networks]
        return passes


class _Minibatch:
    """Views of the buffers for one slice of an epoch, made once since they take as long as a product."""

    def __init__(self, cut: dict[str, Tensor], passes: Sequence[FlatPass]) -> None:
        self.observation = cut["observation"]
        self.action = cut["action"].numpy()
        weight = cut.get("weight", torch.empty(0))
        self.steps = (*(cut[name].numpy() for name in _STEPS), weight.numpy())
        nothing = torch.empty((0, 0), dtype=torch.bool)
        self.valid = cut.get("valid", nothing[0:0].reshape(-1)).numpy()
        self.allowed = cut.get("allowed", nothing).numpy()
        *self.trunk, policy_pass, critic_pass = passes
        self.heads = (policy_pass, critic_pass)
        policy, critic = [
            (one.outputs[-1].numpy(), one.gradients[-1].numpy()) for one in self.heads
        ]
        self.outputs = (policy, (critic[0].reshape(-1), critic[1].reshape(-1)))
