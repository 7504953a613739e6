"""Updates of policies and critics that are fully connected, with a backward pass that is written out.

    rows of inputs    n: observation      | action that the policy takes now
                      n: next observation | action that it takes next
                      n: observation      | action of the transition
    policy            outputs for the first 2 n rows -> compiled: actions and log densities
    target critics    values of the second n rows    -> compiled: targets of the critics
    critics           values of the third n rows     -> compiled: loss -> gradients -> Adam
    critics           values of the first n rows     -> which critic is the smallest, row by row
                      gradient of these values with respect to the actions, only from that critic
    policy            compiled: gradient of its outputs -> gradients -> Adam

Autograd computes the gradient of all critics for all rows, although the smallest value has only one. Products
of wide layers are PyTorch's, the rest is compiled, and buffers are allocated once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.algos.flat_adam import FlatAdam
from parllel.torch.agents.actor_critic_agent import ActorCriticAgent
from parllel.torch.algos.flat_network import FlatNetwork, FlatPass, flat_layers
from parllel.torch.algos.target_network import TargetNetwork
from parllel.types import Tree

Floats = NDArray[np.float32]


class FlatActorCritic:
    """Values and gradients of the networks of an agent that `known_actor_critic` returns.

    Args:
        agent: the agent. Its parameters are those of the optimisers, in the same order.
        policy_adam, critics_adam: hold parameters and gradients.
        targets: target networks by name: "critics", and "policy" if there is one.
        who: named in errors.

    Raises:
        ValueError: if layers share parameters or have no bias.
    """

    def __init__(
        self,
        agent: ActorCriticAgent,
        policy_adam: FlatAdam,
        critics_adam: FlatAdam,
        targets: dict[str, TargetNetwork],
        who: str,
    ) -> None:
        # numba takes a third of a second to import.
        from parllel.algos import compiled_actor_critic

        self.compiled: Any = compiled_actor_critic
        self._agent, self._who = agent, who
        policy, critics = _Networks(agent.policy, policy_adam, who), agent.critics
        self._policy = policy.networks[0]
        self._critics = _Networks(critics, critics_adam, who).networks
        if any(target.flat is None for target in targets.values()):
            raise ValueError(f"{who}: expected target networks in float32 on the CPU")
        self._target_critics = _Networks(targets["critics"].module, None, who).networks
        self._target_policy: FlatNetwork | None = None
        if "policy" in targets:
            self._target_policy = _Networks(targets["policy"].module, None, who).networks[0]
        self.at: FlatBatch | None = None

    def check(self, batch: Any) -> None:
        """Raise TypeError if this class cannot learn from a batch."""
        encoder: Any = self._agent.policy.encoder
        for name in ("observation", "next_observation"):
            observation = getattr(batch, name)
            if encoder is None and not isinstance(observation, Tensor):
                raise TypeError(
                    f"{self._who}: {name}: expected one array, got a {type(observation).__name__}"
                )
        for name in ("reward", "discount", "weight"):
            field = getattr(batch, name)
            if field.dtype != torch.float32 or not field.is_contiguous():
                raise TypeError(f"{self._who}: {name}: expected float32, got {field.dtype}")

    def load(self, batch: Any) -> FlatBatch:
        """Copy a batch to the inputs, and return the buffers for its size."""
        observation, following = (
            self._features(part) for part in (batch.observation, batch.next_observation)
        )
        n = len(observation)
        if self.at is None or self.at.n != n:
            self.at = FlatBatch(
                n,
                observation.shape[1],
                self._agent.scale.size,
                self._policy,
                self._critics,
                self._target_critics,
                self._target_policy,
            )
        at, size = self.at, observation.shape[1]
        at.now[:, :size].copy_(observation)
        at.following[:, :size].copy_(following)
        at.taken[:, :size].copy_(observation)
        at.taken[:, size:].copy_(self._agent.scale.to_unit(batch.action))
        return at

    def target_values(self) -> Floats:
        """Return the target critics' values of the second rows, [n_critics, n]."""
        at = self._at()
        return _values(at.target_passes, at.following, at.next_values)

    def critic_gradient(self, target: Floats, weight: Floats) -> tuple[float, float, Floats]:
        """Write the gradients of the critics.

        Returns the loss, the mean value, and the mean absolute errors [n], valid until the next call.
        """
        at = self._at()
        values = _values(at.critic_passes, at.taken, at.values)
        loss, value = self.compiled.critic_loss(values, target, weight, at.grad_values, at.errors)
        for k, one in enumerate(at.critic_passes):
            at.last_gradients[k][:] = at.grad_values[k]
            one.backward(at.taken, None)
        return loss, value, at.errors

    def action_values(self) -> Floats:
        """Return the critics' values of the first rows, [n_critics, n]."""
        at = self._at()
        return _values(at.critic_passes, at.now, at.values)

    def action_gradient(self, rows: list[NDArray[np.int64]], slope: float) -> Floats:
        """Return the gradient with respect to the actions of the first rows, [n, size].

        Call it after `action_values`, whose outputs of all layers it needs.

        rows: of each critic, those whose values have a gradient, `slope`. Each row is in one of them.
        """
        at = self._at()
        for k, (network, chosen) in enumerate(zip(self._critics, rows, strict=True)):
            if len(chosen):
                self._action_gradient_of(network, k, chosen, slope)
        return at.grad_unit

    def _action_gradient_of(
        self, network: FlatNetwork, k: int, rows: NDArray[np.int64], slope: float
    ) -> None:
        at, n, compiled = self._at(), len(rows), self.compiled
        *hidden, (last, _) = network.layers
        if not hidden:
            at.grad_unit[rows] = slope * last[0, at.n_features :].numpy()
            return
        layers = at.hidden_of[k]
        (output, _, gradient), *below = reversed(layers)
        compiled.last_hidden_gradient(
            last[0].numpy(), slope, output, rows, network.is_tanh, gradient
        )
        # The buffers of gradients are free, since the critics' own gradients have been used.
        current = layers[-1][1][:n]
        for (weight, _), (output, buffer, gradient) in zip(hidden[:0:-1], below, strict=True):
            following = buffer[:n]
            torch.mm(current, weight, out=following)
            compiled.scale_rows_by_slope(gradient, output, rows, network.is_tanh)
            current = following
        # The gradient with respect to the observation is not needed. Transposed, as in `FlatPass`.
        part = torch.mm(hidden[0][0][:, at.n_features :].t(), current.t())
        compiled.put_columns(part.numpy(), rows, at.grad_unit)

    def _features(self, observation: Tree) -> Tensor:
        encoder: Any = self._agent.policy.encoder
        if encoder is not None:
            with torch.no_grad():
                observation = encoder(observation)
        features: Tensor = observation
        return features if features.dim() == 2 else features.reshape(len(features), -1)

    def _at(self) -> FlatBatch:
        assert self.at is not None
        return self.at


class FlatBatch:
    """Buffers and views for batches of n transitions, made once since they take as long as a product.

    Attributes:
        now, following, taken: inputs of critics [n, n_features + size], see the module's docstring.
        unit, next_unit: actions of the policy in `now` and `following`, [n, size].
        noise, next_noise: of these actions.
        both_log_prob: log densities of both, [2 n].
        outputs: of the policy, for `now` and `following`, [2 n, n_outputs].
        target: of the critics, [n].
        grad_unit: gradient with respect to `unit`.
    """

    def __init__(
        self,
        n: int,
        n_features: int,
        size: int,
        policy: FlatNetwork,
        critics: list[FlatNetwork],
        target_critics: list[FlatNetwork],
        target_policy: FlatNetwork | None,
    ) -> None:
        self.n, self.n_features = n, n_features
        inputs = torch.zeros(3 * n, n_features + size)
        self.now, self.following, self.taken = inputs[:n], inputs[n : 2 * n], inputs[2 * n :]
        self._both = inputs[: 2 * n, :n_features]
        self.both_unit: Floats = inputs[: 2 * n, n_features:].numpy()
        self.unit, self.next_unit = self.both_unit[:n], self.both_unit[n:]
        for network, rows in ((policy, 2 * n), *((one, n) for one in (*critics, *target_critics))):
            network.reserve(rows)
        self._policy_both, self._policy = policy.views(2 * n), policy.views(n)
        self.outputs: Floats = self._policy_both.outputs[-1].numpy()
        self.grad_outputs: Floats = self._policy.gradients[-1].numpy()
        self.critic_passes = [one.views(n) for one in critics]
        # Outputs, gradients as tensors, and gradients, of the hidden layers of each critic.
        self.hidden_of = [
            [
                (output.numpy(), gradient, gradient.numpy())
                for output, gradient in zip(one.outputs[:-1], one.gradients[:-1], strict=True)
            ]
            for one in self.critic_passes
        ]
        self.target_passes = [one.views(n) for one in target_critics]
        self.last_gradients = [one.gradients[-1].numpy()[:, 0] for one in self.critic_passes]
        self._target_policy: FlatPass | None = None
        if target_policy is not None:
            target_policy.reserve(n)
            self._target_policy = target_policy.views(n)
        both_noise = torch.zeros(2 * n, size)
        self.noise, self.next_noise = both_noise[:n], both_noise[n:]
        self.both_noise: Floats = both_noise.numpy()
        self.both_log_prob = np.zeros(2 * n, np.float32)
        self.log_prob, self.next_log_prob = self.both_log_prob[:n], self.both_log_prob[n:]
        K = len(critics)
        self.values, self.next_values, self.grad_values = np.zeros((3, K, n), np.float32)
        self.target, self.errors = np.zeros((2, n), np.float32)
        self.grad_unit = np.zeros((n, size), np.float32)
        self.rows, self.counts = np.zeros((K, n), np.int64), np.zeros(K, np.int64)
        self.rows[0] = np.arange(n)

    def forward_both(self) -> None:
        """Compute the policy's outputs for `now` and `following`."""
        self._policy_both.forward(self._both)

    def forward_now(self) -> Floats:
        """Return the policy's outputs for `now`, [n, n_outputs]."""
        return self._policy.forward(self.now[:, : self.n_features]).numpy()

    def forward_target_policy(self) -> Floats:
        """Return the target policy's outputs for `following`, [n, n_outputs]."""
        assert self._target_policy is not None
        return self._target_policy.forward(self.following[:, : self.n_features]).numpy()

    def backward_policy(self) -> None:
        """Write the gradients of the policy, from `grad_outputs` for `now`."""
        self._policy.backward(self.now[:, : self.n_features], None)


class _Networks:
    """The networks of a policy or of critics, over flat parameters."""

    def __init__(self, module: Any, adam: FlatAdam | None, who: str) -> None:
        from parllel.algos import compiled_updates

        parameters: list[nn.Parameter] = list(module.parameters())
        if adam is None:
            # Gradients of target networks are never written.
            places: dict[int, Any] = {id(p): (p.data, p.data) for p in parameters}
        else:
            views = zip(adam.parameter_views, adam.split(adam.gradients), strict=True)
            pairs = [tuple(map(torch.from_numpy, pair)) for pair in views]
            places = {id(p): pair for p, pair in zip(parameters, pairs, strict=True)}
        used: set[int] = set()
        self.networks = [
            FlatNetwork(
                flat_layers(one, places, used, who),
                compiled_updates,
                one.activation,
            )
            for one in getattr(module, "networks", None) or [module.network]
        ]


def _values(passes: list[FlatPass], x: Tensor, values: Floats) -> Floats:
    for one, row in zip(passes, values, strict=True):
        row[:] = one.forward(x).numpy()[:, 0]
    return values
