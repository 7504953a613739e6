"""Updates of known models of action values, with a backward pass that is written out.

    transitions   -> buffers: observations, and below them the next observations
    online        outputs for both; target network: for the next observations
    compiled      targets, loss and gradients of the outputs
    online        gradients of all layers, in one flat array -> compiled Adam

With small networks, autograd spends more time on its bookkeeping than on arithmetic. Loops over transitions
are compiled, and so are networks with narrow layers (`NarrowPass`). Products of wide layers are PyTorch's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parllel.algos.flat_adam import FlatAdam
from parllel.torch.algos.flat_network import FlatNetwork, FlatPass, flat_layers
from parllel.torch.algos.q_inputs import QInputs
from parllel.torch.algos.target_network import TargetNetwork
from parllel.torch.known_models import features_of
from parllel.torch.models.q_model import QModel
from parllel.types import Tree

_WHO = "DQN: update='flat'"
_NOTHING = np.empty(0, np.float32)
_NO_ROWS = np.empty((0, 0), np.float32)
_ALL_ALLOWED = np.empty((0, 0), np.bool_)


class FlatQUpdate:
    """Loss and gradients of a model that `known_q_model` returns.

    Args:
        model: the learned model. Its parameters are those of `adam`, in the same order.
        target: its copy.
        adam: holds parameters and gradients.
        start: the first action.
        double: whether the online network chooses the next action.
        huber_delta: bound of the gradient of the Huber loss; inf for half the squared error.

    Raises:
        ValueError: if layers share parameters or have no bias.
    """

    def __init__(
        self,
        model: QModel,
        target: TargetNetwork,
        adam: FlatAdam,
        *,
        start: int,
        double: bool,
        huber_delta: float,
    ) -> None:
        # numba takes a third of a second to import.
        from parllel.algos import compiled_q_updates

        if target.flat is None:
            raise ValueError(f"{_WHO}: expected float32 on the CPU")
        self.adam = adam
        self._compiled: Any = compiled_q_updates
        self._model, self._start, self._double = model, start, double
        self._delta = huber_delta
        views = zip(adam.parameter_views, adam.split(adam.gradients), strict=True)
        pairs = [tuple(map(torch.from_numpy, pair)) for pair in views]
        own = {id(p): pair for p, pair in zip(model.parameters(), pairs, strict=True)}
        self._online = _Networks(model, own)
        # Gradients of the target network are never written.
        self._target = _Networks(
            target.module, {id(p): (p.data, p.data) for p in target.module.parameters()}
        )
        self._sums = np.zeros(compiled_q_updates.N_SUMS)
        self._buffers: dict[int, _Buffers] = {}

    def check(self, inputs: QInputs) -> None:
        """Raise TypeError if this class cannot learn from a batch."""
        if list(inputs.agent) != ["observation"]:
            raise TypeError(
                f"{_WHO}: expected observations as the model's only input, got {list(inputs.agent)}"
            )
        if self._online.encode is None and not isinstance(inputs.agent["observation"], Tensor):
            got = type(inputs.agent["observation"]).__name__
            raise TypeError(f"{_WHO}: observation: expected one array, got a {got}")

    def loss(self, inputs: QInputs) -> tuple[float, NDArray[np.float32], dict[str, float]]:
        """Compute the loss of a batch, and write its gradients to `adam.gradients`.

        Returns the loss, the absolute errors [n], valid until the next call, and the means of diagnostics.

        Raises:
            ValueError: for an action that is not one of the agent's.
        """
        n = len(inputs.action)
        at = self._buffers.get(n)
        if at is None:
            self._buffers.clear()
            at = self._buffers[n] = self._make_buffers(n, inputs)
        observation, following = inputs.agent["observation"], inputs.next_agent["observation"]
        at.x.copy_(self._features(observation))
        at.next_x.copy_(self._features(following))
        at.online_both.forward(at.both_x, at.x)
        at.target.forward(at.next_x, at.next_x)
        allowed = _ALL_ALLOWED
        if self._model.action_mask is not None:
            allowed = self._model.allowed(following).numpy()
        reward, discount, weight = (
            _contiguous(field) for field in (inputs.reward, inputs.discount, inputs.weight)
        )
        action = np.ascontiguousarray(inputs.action.numpy(), dtype=np.int64)
        bad = self._compiled.q_loss(
            *(at.values, at.state, at.next_target, at.next_state, at.next_online, allowed),
            *(action, reward, discount, weight, self._start, self._delta, 1.0 / n),
            *(at.grad_values, at.grad_state, at.errors, self._sums),
        )
        if bad >= 0:
            last = self._start + self._model.n_actions - 1
            raise ValueError(
                f"DQN: action: expected {self._start} to {last}, got {int(action[bad])}"
            )
        at.online.backward(at.x)
        loss, value, target, error = (self._sums / n).tolist()
        return loss, at.errors, {"q_value": value, "target": target, "td_error": error}

    def _features(self, observation: Tree) -> Tensor:
        """Return the inputs of the layers, [n, size]."""
        if self._online.encode is not None:
            with torch.no_grad():
                observation = self._online.encode(observation)
        features: Tensor = observation
        return features if features.dim() == 2 else features.reshape(len(features), -1)

    def _make_buffers(self, n: int, inputs: QInputs) -> _Buffers:
        size = self._features(inputs.agent["observation"]).shape[1]
        n_online = 2 * n if self._double else n
        self._online.reserve(n_online)
        self._target.reserve(n)
        both, online, target = (
            self._online.views(n_online, n),
            self._online.views(n, n),
            self._target.views(n, n),
        )
        values = both.actions.outputs[-1].numpy()
        x = torch.empty(2 * n, size)
        return _Buffers(
            x=x[:n],
            next_x=x[n:],
            both_x=x[:n_online],
            online_both=both,
            online=online,
            target=target,
            values=values[:n],
            state=online.of_state,
            next_online=values[n:] if self._double else _NO_ROWS,
            next_target=target.actions.outputs[-1].numpy(),
            next_state=target.of_state,
            grad_values=online.actions.gradients[-1].numpy(),
            grad_state=online.gradient_of_state,
            errors=np.empty(n, np.float32),
        )


class _Networks:
    """The networks of a model: a trunk if there is one, of actions, and of states if they are duelling."""

    def __init__(self, model: Any, places: dict[int, Any]) -> None:
        from parllel.algos import compiled_updates

        self.encode, trunk = features_of(model)
        used: set[int] = set()
        self._networks = [
            None
            if module is None
            else FlatNetwork(
                flat_layers(module, places, used, _WHO),
                compiled_updates,
                module.activation,
                is_trunk=module is trunk,
                has_trunk=trunk is not None and module is not trunk,
            )
            for module in (trunk, model.actions, model.state_value)
        ]

    def reserve(self, n: int) -> None:
        for network in self._networks:
            if network is not None:
                network.reserve(n)

    def views(self, n: int, n_states: int) -> _Passes:
        """Return the networks at work on n observations, and on the first of them for values of states."""
        trunk, actions, state = self._networks
        assert actions is not None
        return _Passes(
            None if trunk is None else trunk.views(n),
            actions.views(n),
            None if state is None else state.views(n_states),
        )


class _Passes(NamedTuple):
    trunk: FlatPass | None
    actions: FlatPass
    state: FlatPass | None

    def forward(self, x: Tensor, of_states: Tensor) -> None:
        """Compute the outputs for `x`, and values of states for `of_states`, which are its first rows."""
        if self.trunk is not None:
            x = self.trunk.forward(x)
            of_states = x[: len(of_states)]
        self.actions.forward(x)
        if self.state is not None:
            self.state.forward(of_states)

    def backward(self, x: Tensor) -> None:
        heads = [self.actions] if self.state is None else [self.actions, self.state]
        if self.trunk is None:
            for head in heads:
                head.backward(x, None)
            return
        for number, head in enumerate(heads):
            # The features' gradient is the sum over both networks.
            head.backward(self.trunk.outputs[-1], self.trunk.gradients[-1], add=number > 0)
        self.trunk.backward(x, None)

    @property
    def of_state(self) -> NDArray[np.float32]:
        return _NOTHING if self.state is None else self.state.outputs[-1].reshape(-1).numpy()

    @property
    def gradient_of_state(self) -> NDArray[np.float32]:
        return _NOTHING if self.state is None else self.state.gradients[-1].reshape(-1).numpy()


class _Buffers(NamedTuple):
    """Views for batches of n transitions, made once since they take as long as a product."""

    x: Tensor
    next_x: Tensor
    both_x: Tensor
    online_both: _Passes
    online: _Passes
    target: _Passes
    values: NDArray[np.float32]
    state: NDArray[np.float32]
    next_online: NDArray[np.float32]
    next_target: NDArray[np.float32]
    next_state: NDArray[np.float32]
    grad_values: NDArray[np.float32]
    grad_state: NDArray[np.float32]
    errors: NDArray[np.float32]


def _contiguous(field: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(field.numpy(), dtype=np.float32)
