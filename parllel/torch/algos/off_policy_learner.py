"""What off-policy algorithms in PyTorch share: optimisers, target networks and checked gradient steps."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parllel.algos.arguments import check_seed
from parllel.algos.off_policy_algorithm import OffPolicyAlgorithm
from parllel.buffers.samples import Samples
from parllel.replays import Replay, ReplayBatch
from parllel.torch.algos.adam import Adam
from parllel.torch.algos.batch_tensors import BatchTensors
from parllel.torch.algos.shared_steps import SharedSteps
from parllel.torch.algos.target_network import TargetNetwork
from parllel.types import State, overrides


class OffPolicyLearner(OffPolicyAlgorithm):
    """Base class of off-policy algorithms that train PyTorch models.

    A subclass creates optimisers and target networks in its constructor, and implements `update`:

        class MyAlgorithm(OffPolicyLearner):
            def __init__(self, agent, *, learning_rate, tau, seed):
                super().__init__(agent, seed=seed)
                self.add_optimizer("critics", agent.critics.parameters(), learning_rate)
                self.add_target("critics", agent.critics)
                self.tau = tau

            def update(self, batch):
                loss = ...
                norm = self.step("critics", loss)
                self.targets["critics"].update(self.tau)
                return {"critic_loss": loss.detach(), "gradient_norm": norm}

    Args:
        agent: the agent to train, with a `device`.
        seed: of the noise of updates.

    Attributes:
        optimizers, targets: by name.
        n_updates: number of gradient steps so far.
        generator: PyTorch's generator on the CPU for all noise of updates, so that it does not depend on the
            device.
    """

    def __init__(self, agent: Any, *, seed: int) -> None:
        check_seed(type(self).__name__, seed)
        self.agent = agent
        self.device: torch.device = agent.device
        self.optimizers: dict[str, Adam] = {}
        self.targets: dict[str, TargetNetwork] = {}
        self.n_updates = 0
        self.generator = torch.Generator().manual_seed(seed)
        self._tensors = BatchTensors(self.device)
        self._shared: SharedSteps | None = None  # with several learners

    def add_optimizer(
        self,
        name: str,
        parameters: Sequence[nn.Parameter],
        learning_rate: float,
        *,
        eps: float = 1e-8,
        flat: bool = True,
    ) -> Adam:
        """Create an Adam for some parameters, whose state is saved under `name`."""
        adam = Adam(list(parameters), lr=learning_rate, eps=eps, flat=flat)
        self.optimizers[name] = adam
        return adam

    def add_target(self, name: str, module: nn.Module) -> TargetNetwork:
        """Create the target network of a module whose optimiser has the same name."""
        self.targets[name] = TargetNetwork(module, self.optimizers[name])
        return self.targets[name]

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the fields that are read of a batch of the sampler."""
        return ["agent.observation", "agent.action"]

    def prepare(self) -> None:
        """Create the optimisers, and compile what updates need."""
        for adam in self.optimizers.values():
            adam.prepare()

    def optimize_agent(self, elapsed_steps: int, samples: ReplayBatch) -> Mapping[str, Any]:
        """Take one gradient step and return the diagnostics of `update`.

        Raises:
            FloatingPointError: if a loss or gradient is not finite. The parameters are unharmed.
        """
        batch = self._tensors.of(samples)
        self.agent.train_mode()
        try:
            diagnostics = self.update(batch)
        # Also after an error: what is sampled later must not be sampled with dropout.
        finally:
            self.agent.sample_mode()
        self.n_updates += 1
        return diagnostics

    @abstractmethod
    def update(self, batch: Any) -> Mapping[str, Any]:
        """Take one gradient step and return diagnostics.

        batch: what the replay drew, with tensors on the agent's device in place of arrays.
        """

    def step(self, name: str, loss: Tensor, max_norm: float = math.inf) -> float:
        """Take a step of an optimiser, and return the norm of the gradients before clipping.

        Gradients are computed for the parameters of this optimiser only: the critics' own gradients are not
        computed for the loss of a policy.

        Raises:
            FloatingPointError: if the loss or the gradients are not finite. Nothing is changed then.
        """
        self.check_finite(name, "loss", loss.item())
        adam = self.optimizers[name]
        gradients: Sequence[Tensor | None]
        gradients = torch.autograd.grad(loss, adam.parameters, allow_unused=True)
        if self._shared is not None:
            gradients = self._shared.gradients(adam.parameters, gradients)
        for parameter, gradient in zip(adam.parameters, gradients, strict=True):
            parameter.grad = gradient
        (norm,) = adam.step(max_norm)
        # Not kept: gradients take as much memory as the model.
        for parameter in adam.parameters:
            parameter.grad = None
        return self.check_finite(name, "norm of the gradient", norm)

    def check_finite(self, name: str, what: str, value: float) -> float:
        """Return the value. Raises FloatingPointError if it is not finite."""
        if not math.isfinite(value):
            raise FloatingPointError(
                f"{type(self).__name__}: {name}: the {what} is not finite: {value}"
            )
        return value

    def wants_errors(self, batch: ReplayBatch) -> bool:
        """Return whether the replay that drew a batch uses priorities."""
        return overrides(batch.replay, Replay, "update_priorities")

    def state(self) -> State:
        """Return optimisers, target networks, and the state of the noise."""
        return {
            "optimizers": {name: adam.state() for name, adam in self.optimizers.items()},
            "targets": {name: target.state() for name, target in self.targets.items()},
            "generator": self.generator.get_state().numpy().copy(),
            "n_updates": self.n_updates,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if it belongs to other optimisers, targets or models.
        """
        for part, own in (("optimizers", self.optimizers), ("targets", self.targets)):
            if state[part].keys() != own.keys():
                raise ValueError(
                    f"{type(self).__name__}: {part}: expected {sorted(own)}, got {sorted(state[part])}"
                )
        for name, adam in self.optimizers.items():
            adam.load_state(state["optimizers"][name])
        for name, target in self.targets.items():
            target.load_state(state["targets"][name])
        self.generator.set_state(torch.tensor(state["generator"], dtype=torch.uint8))
        self.n_updates = int(state["n_updates"])
