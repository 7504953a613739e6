"""What SAC and TD3 share: critics that learn from one target, and targets that follow slowly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parllel.torch.agents.actor_critic_agent import ActorCriticAgent
from parllel.torch.algos.arguments import check_positive, check_share
from parllel.torch.algos.off_policy_learner import OffPolicyLearner


class ActorCritic(OffPolicyLearner):
    """Base class of algorithms that learn a policy and several critics of continuous actions.

    Args:
        agent: the agent to train.
        kind: the class of agent that a subclass trains.
        learning_rate: of policy and critics.
        tau: share by which target networks move to the trained ones in each update.
        random_steps: number of environment steps at the start whose actions are uniform.
        seed: of the noise of updates.
        flat: whether optimisers may work on flat arrays.
    """

    def __init__(
        self,
        agent: ActorCriticAgent,
        kind: type[ActorCriticAgent],
        *,
        learning_rate: float,
        tau: float,
        random_steps: int,
        seed: int,
        flat: bool,
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
        super().__init__(agent, seed=seed)
        self.learning_rate = learning_rate
        self.tau = tau
        self.random_steps = random_steps
        for name, module in (("policy", agent.policy), ("critics", agent.critics)):
            self.add_optimizer(name, list(module.parameters()), learning_rate, flat=flat)
        self.add_target("critics", agent.critics)

    def before_sampling(self, elapsed_steps: int) -> None:
        """Take random actions in batches that begin before `random_steps`."""
        self.agent.random_actions = elapsed_steps < self.random_steps

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

    def noise(self, n: int) -> Tensor:
        """Draw standard normal noise [n, size] for an update, on the agent's device."""
        noise = torch.empty((n, self.agent.scale.size)).normal_(generator=self.generator)
        return noise.to(self.device)
