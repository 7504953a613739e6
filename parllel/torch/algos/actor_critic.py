"""What SAC and TD3 share: critics that learn from one target, and targets that follow slowly."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parllel.algos.arguments import check_positive, check_share
from parllel.algos.flat_adam import FlatAdam
from parllel.algos.learner_group import LearnerGroup
from parllel.replays import ReplayBatch
from parllel.torch.agents.actor_critic_agent import ActorCriticAgent
from parllel.torch.algos.flat_actor_critic import FlatActorCritic
from parllel.torch.algos.off_policy_learner import OffPolicyLearner
from parllel.torch.algos.shared_steps import SharedSteps, check_trained
from parllel.torch.known_models import known_actor_critic
from parllel.types import BatchSpec, State

_INSTEAD = "give update='auto'"


class ActorCritic(OffPolicyLearner):
    """Base class of algorithms that learn a policy and several critics of continuous actions.

    Args:
        agent: the agent to train.
        kind: the class of agent that a subclass trains.
        learning_rate: of policy and critics.
        tau: share by which target networks move to the trained ones in each update.
        random_steps: number of environment steps at the start whose actions are uniform.
        seed: of the noise of updates.
        update: how updates are computed, see `update_method`.

    Attributes:
        update_method: how the last batch was learned: "flat" with gradients that are written out, for
            networks of this library without learned encoders; "flat parameters" with gradients by autograd
            and a compiled optimiser; "autograd" with PyTorch only.
    """

    # Methods that a flat update replaces. A subclass adds its own.
    _replaced: ClassVar[tuple[str, ...]] = (
        "update",
        "target",
        "critic_loss",
        "update_critics",
        "policy_loss",
        "step",
    )

    def __init__(
        self,
        agent: ActorCriticAgent,
        kind: type[ActorCriticAgent],
        *,
        learning_rate: float,
        tau: float,
        random_steps: int,
        seed: int,
        update: Literal["auto", "autograd", "flat"],
    ) -> None:
        who = type(self).__name__
        if not isinstance(agent, kind):
            raise TypeError(
                f"{who}: agent: expected a {kind.__name__}, got a {type(agent).__name__}"
            )
        check_positive(who, learning_rate=learning_rate)
        check_share(who, tau=tau)
        if not isinstance(random_steps, int) or random_steps < 0:
            raise ValueError(
                f"{who}: random_steps: expected a number of steps, got {random_steps!r}"
            )
        if update not in ("auto", "autograd", "flat"):
            raise ValueError(
                f"{who}: update: expected 'auto', 'autograd' or 'flat', got {update!r}"
            )
        super().__init__(agent, seed=seed)
        self._option = update
        self._flat: FlatActorCritic | None = None
        self._made_of: list[Any] = []
        self._adams: dict[str, FlatAdam] = {}
        self._chosen = False
        self.learning_rate = learning_rate
        self.tau = tau
        self.random_steps = random_steps
        for name, module in (("policy", agent.policy), ("critics", agent.critics)):
            self.add_optimizer(
                name, list(module.parameters()), learning_rate, flat=update != "autograd"
            )
        self.add_target("critics", agent.critics)

    def join(self, learners: LearnerGroup, batch_spec: BatchSpec) -> None:
        """Learn together with other processes: each draws a share of every batch, gradients are averaged.

        Raises:
            TypeError: for a subclass that overrides how updates are computed, a model with batch
                normalisation, or parameters that are not float32 or float64 on the CPU.
        """
        who = type(self).__name__
        for name in (*self._replaced, "noise", "optimize_agent"):
            if self._overrides(name):
                raise TypeError(
                    f"{who} does not support several learners, because it overrides {name}"
                )
        for module in (self.agent.policy, self.agent.critics):
            check_trained(module, who)
        self._shared = SharedSteps(learners)

    def before_sampling(self, elapsed_steps: int) -> None:
        """Take random actions in batches that begin before `random_steps`."""
        # Hooks may have been added to a model; looking for them in each update takes too long.
        self._chosen = False
        self.agent.random_actions = elapsed_steps < self.random_steps

    def optimize_agent(self, elapsed_steps: int, samples: ReplayBatch) -> Mapping[str, Any]:
        """Take one gradient step and return the diagnostics of `update`.

        Raises:
            FloatingPointError: if a loss or gradient is not finite. The parameters are unharmed.
            TypeError: with `update="flat"`, if agent, class or batch do not allow it.
        """
        flat = self._flat_update(samples)
        if flat is None:
            diagnostics = super().optimize_agent(elapsed_steps, samples)
        else:
            diagnostics = self._update_by(flat, self._tensors.of(samples))
            self.n_updates += 1
        return diagnostics if self._shared is None else self._shared.diagnostics(diagnostics)

    def target(self, batch: Any) -> Tensor:
        """Return the target of the critics' estimates, [n] without gradients."""
        raise NotImplementedError

    def critic_loss(self, batch: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the critics' loss, the temporal-difference errors [n] for priorities, and diagnostics.

        The loss is the sum over critics k of the mean of weight * (Q_k(s, a) - target)^2 / 2.
        """
        target = self.target(batch)
        action = self.agent.scale.to_unit(batch.action)
        values = self.agent.critics(batch.observation, action)
        if values.dim() != 2 or values.shape[1:] != target.shape:
            raise ValueError(
                f"{type(self.agent.critics).__name__}: expected values of shape (n_critics, {len(target)}), "
                f"got {tuple(values.shape)}"
            )
        errors = values - target
        loss = 0.5 * (batch.weight * errors.square()).mean(dim=1).sum()
        diagnostics = {"critic_loss": loss.detach(), "value": values.detach().mean()}
        return loss, errors.detach().abs().mean(dim=0), diagnostics

    def update_critics(self, batch: Any) -> dict[str, Any]:
        """Take a gradient step of the critics, and return diagnostics."""
        loss, errors, diagnostics = self.critic_loss(batch)
        norm = self.step("critics", loss)
        if self.wants_errors(batch):
            batch.update_priorities(errors.cpu().numpy())
        return {**diagnostics, "critic_gradient_norm": norm}

    @abstractmethod
    def _update_by(self, flat: FlatActorCritic, batch: Any) -> Mapping[str, Any]:
        """As `update`, with gradients that are written out."""

    def _step_critics(
        self, flat: FlatActorCritic, target: NDArray[np.float32], batch: Any
    ) -> dict[str, Any]:
        """As `update_critics`, for a target [n]."""
        loss, value, errors = flat.critic_gradient(target, batch.weight.numpy())
        self.check_finite("critics", "loss", loss)
        norm = self._step_flat("critics")
        if self.wants_errors(batch):
            batch.update_priorities(errors)
        return {"critic_loss": loss, "value": value, "critic_gradient_norm": norm}

    def _step_flat(self, name: str) -> float:
        """Take a step of an optimiser whose flat gradients have been written, and return their norm."""
        adam, flat = self.optimizers[name], self._adams[name]
        if self._shared is not None:
            self._shared.average(flat.gradients)
        norm = self.check_finite(name, "norm of the gradient", float(flat.norms()[0]))
        flat.step(math.inf)
        adam.scatter()
        return norm

    def _flat_update(self, samples: Any) -> FlatActorCritic | None:
        """Return what writes gradients out; None for autograd."""
        if self._chosen:
            return self._flat
        self._chosen = True
        adams = [adam.prepare() for adam in self.optimizers.values()]
        self.update_method = "autograd" if None in adams else "flat parameters"
        try:
            flat = self._make_flat(adams)
            flat.check(self._tensors.of(samples))
        except (TypeError, ValueError) as error:
            self._flat = None
            if self._option == "flat":
                raise TypeError(str(error)) from None
            return None
        self.update_method = "flat"
        self._flat = flat
        return flat

    def _make_flat(self, adams: list[Any]) -> FlatActorCritic:
        """Return what writes gradients out. Raises TypeError or ValueError if that is impossible."""
        who = f"{type(self).__name__}: update='flat'"
        for name in self._replaced:
            if self._overrides(name):
                raise TypeError(f"{who}: {name} is overridden, but would not be called; {_INSTEAD}")
        for adam in self.optimizers.values():
            why = None if adam.is_flat else adam.why_not_flat()
            if why is not None:
                raise TypeError(f"{who}: {why}; {_INSTEAD}")
        agent: Any = known_actor_critic(self.agent, who, _INSTEAD)
        for name in ("policy", "critics"):
            own = [id(p) for p in getattr(agent, name).parameters()]
            if own != [id(p) for p in self.optimizers[name].parameters]:
                raise ValueError(f"{who}: the agent's {name} have been replaced; {_INSTEAD}")
        networks = [agent.policy.network, *agent.critics.networks]
        made_of = [*adams, *((one, one.activation) for one in networks)]
        if self._flat is None or made_of != self._made_of:
            for name in ("policy", "critics"):
                # Parameters in shared memory are read by other processes, and must stay where they are.
                parameters: list[Any] = self.optimizers[name].parameters
                if not any(p.is_shared() for p in parameters):
                    self.optimizers[name].bind()
            self._adams = dict(zip(self.optimizers, adams, strict=True))
            self._made_of = made_of
            flat = self._adams["policy"], self._adams["critics"]
            return FlatActorCritic(agent, *flat, self.targets, who)
        return self._flat

    def _overrides(self, name: str) -> bool:
        """Return whether there is a method of a subclass, or of this object, in place of the library's."""
        return name in vars(self) or getattr(type(self), name) is not getattr(
            self._known_class(), name
        )

    @classmethod
    @abstractmethod
    def _known_class(cls) -> type[ActorCritic]:
        """Return the class whose methods a flat update replaces."""

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        # The loaded optimisers have other arrays.
        self._chosen = False
        super().load_state(state)

    def noise(self, n: int) -> Tensor:
        """Draw standard normal noise [n, size] for an update, on the agent's device."""
        size = self.agent.scale.size
        if self._shared is not None:
            return self._shared.noise(n, size, self.generator)
        noise = torch.empty((n, size)).normal_(generator=self.generator)
        return noise.to(self.device)
