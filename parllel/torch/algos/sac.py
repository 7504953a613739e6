"""Soft actor-critic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from parllel.algos.arguments import check_positive
from parllel.runs.names import suggest_names
from parllel.torch.agents.sac_agent import SacAgent
from parllel.torch.algos.actor_critic import ActorCritic
from parllel.torch.algos.flat_actor_critic import FlatActorCritic
from parllel.torch.distributions.squashed_gaussian import MAX_LOG_STD, MIN_LOG_STD
from parllel.types import State


class SAC(ActorCritic):
    """Soft actor-critic with a learned temperature (Haarnoja et al. 2018b, "Soft Actor-Critic Algorithms and
    Applications", algorithm 1).

    With the temperature alpha, critics Q_k, and their slow copies Q'_k, each update takes a gradient step of
    each of these losses, the expectations being means over the batch:

        target   y = r + discount * (min_k Q'_k(s', a') - alpha log pi(a' | s')),   a' ~ pi(s')
        critics  sum_k E[weight (Q_k(s, a) - y)^2] / 2                              (eq. 5)
        policy   E[alpha log pi(a~ | s) - min_k Q_k(s, a~)],   a~ ~ pi(s)           (eq. 7)
        alpha    -log alpha E[log pi(a~ | s) + target_entropy]                      (eq. 18)

    and moves the slow copies by `tau` to the critics. `r`, `discount` and s' are the replay's, for one or
    several steps. Policy and critics work with actions scaled to [-1, 1], see `ActorCriticAgent`, and so
    does the entropy.

    Args:
        agent: the agent to train.
        learning_rate: of all three optimisers (Adam).
        tau: share by which the slow copies move to the critics in each update.
        target_entropy: entropy in nats that the temperature keeps the policy at. None for minus the number of
            elements in an action.
        initial_temperature: alpha before the first update.
        learn_temperature: whether alpha is learned. Otherwise it keeps its initial value.
        random_steps: number of environment steps at the start with uniformly random actions.
        seed: of the noise of updates.
        update: how updates are computed. With "auto", the fastest of three ways that suits agent and class,
            see `update_method`; "flat" requires the first of them, and "autograd" uses the last.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument has the wrong type; with `update="flat"`, if agent, class or batch do not
            allow it.

    Attributes:
        update_method: how the last batch was learned: "flat" with gradients that are written out, for the
            models of `sac_agent_for` without convolutions; "flat parameters" with gradients by autograd and a
            compiled optimiser; "autograd" with PyTorch only.
    """

    _replaced = (*ActorCritic._replaced, "temperature_loss")

    @suggest_names()
    def __init__(
        self,
        agent: SacAgent,
        *,
        learning_rate: float,
        tau: float,
        target_entropy: float | None,
        initial_temperature: float,
        learn_temperature: bool,
        random_steps: int,
        seed: int,
        update: Literal["auto", "autograd", "flat"] = "auto",
    ) -> None:
        check_positive("SAC", initial_temperature=initial_temperature)
        if target_entropy is not None and not isinstance(target_entropy, Real):
            raise TypeError(
                f"SAC: target_entropy: expected a number or None, got {target_entropy!r}"
            )
        super().__init__(
            agent,
            SacAgent,
            learning_rate=learning_rate,
            tau=tau,
            random_steps=random_steps,
            seed=seed,
            update=update,
        )
        self.target_entropy = float(-agent.scale.size if target_entropy is None else target_entropy)
        self.learn_temperature = learn_temperature
        # A logarithm, so that any value is valid.
        self.log_temperature = nn.Parameter(
            torch.tensor([math.log(initial_temperature)], device=self.device)
        )
        if learn_temperature:
            self.add_optimizer(
                "temperature", [self.log_temperature], learning_rate, flat=update != "autograd"
            )

    @property
    def temperature(self) -> Tensor:
        """The weight alpha of the entropy, a 0-d tensor without gradients."""
        return self.log_temperature.detach().exp().squeeze(0)

    def update(self, batch: Any) -> Mapping[str, Any]:
        """Take a step of critics, policy and temperature, and move the targets. Returns diagnostics.

        These are the losses and gradient norms, `value` (mean estimate of all critics), `entropy` (mean of
        -log pi), and `temperature` before the update.
        """
        temperature = self.temperature
        diagnostics = self.update_critics(batch)
        loss, log_prob, more = self.policy_loss(batch)
        diagnostics |= more
        diagnostics["policy_gradient_norm"] = self.step("policy", loss)
        if self.learn_temperature:
            loss = self.temperature_loss(log_prob.detach())
            self.step("temperature", loss)
            diagnostics["temperature_loss"] = loss.detach()
        self.targets["critics"].update(self.tau)
        return {**diagnostics, "temperature": temperature}

    @torch.no_grad()
    def target(self, batch: Any) -> Tensor:
        """Return y of the class's docstring, [n]."""
        agent = self.agent
        action, log_prob = agent.distribution.unit_sample_and_log_prob(
            agent.outputs(batch.next_observation), self.noise(len(batch.reward))
        )
        values = self.targets["critics"].module(batch.next_observation, action)
        value = values.amin(dim=0) - self.temperature * log_prob
        # Selected: where the episode terminated, the value may be anything, even NaN.
        bootstrap = torch.where(batch.discount > 0, batch.discount * value, 0.0)
        target: Tensor = batch.reward + bootstrap
        return target

    def policy_loss(self, batch: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the policy's loss, log probabilities [n] of the actions that it drew, and diagnostics."""
        agent = self.agent
        action, log_prob = agent.distribution.unit_sample_and_log_prob(
            agent.outputs(batch.observation), self.noise(len(batch.reward))
        )
        value = agent.critics(batch.observation, action).amin(dim=0)
        loss = (self.temperature * log_prob - value).mean()
        return (
            loss,
            log_prob,
            {"policy_loss": loss.detach(), "entropy": -log_prob.detach().mean()},
        )

    def temperature_loss(self, log_prob: Tensor) -> Tensor:
        """Return the loss of log alpha. `log_prob` [n] has no gradients."""
        return -(self.log_temperature * (log_prob + self.target_entropy)).mean()

    def _update_by(self, flat: FlatActorCritic, batch: Any) -> Mapping[str, Any]:
        # Each time, because parameters may have been loaded since the last step.
        for adam in self.optimizers.values():
            adam.gather()
        temperature = math.exp(float(self.log_temperature.detach()[0]))
        at, compiled = flat.load(batch), flat.compiled
        # In the order of `update`, whose noise is the same.
        at.next_noise.copy_(self.noise(at.n))
        at.noise.copy_(self.noise(at.n))
        at.forward_both()
        compiled.squashed_sample(
            at.outputs, at.both_noise, MIN_LOG_STD, MAX_LOG_STD, at.both_unit, at.both_log_prob
        )
        compiled.soft_target(
            flat.target_values(),
            at.next_log_prob,
            temperature,
            batch.reward.numpy(),
            batch.discount.numpy(),
            at.target,
        )
        diagnostics = self._step_critics(flat, at.target, batch)
        value = compiled.smallest_values(flat.action_values(), at.rows, at.counts)
        log_prob = float(at.log_prob.mean(dtype=np.float64))
        loss = self.check_finite("policy", "loss", temperature * log_prob - value)
        counts = at.counts.tolist()
        rows = [row[:count] for row, count in zip(at.rows, counts, strict=True)]
        gradient = flat.action_gradient(rows, -1.0)
        compiled.squashed_gradient(
            *(at.outputs[: at.n], at.both_noise[: at.n], at.unit, gradient, temperature),
            *(MIN_LOG_STD, MAX_LOG_STD, 1 / at.n, at.grad_outputs),
        )
        at.backward_policy()
        diagnostics |= {
            "policy_loss": loss,
            "entropy": -log_prob,
            "policy_gradient_norm": self._step_flat("policy"),
        }
        if self.learn_temperature:
            slope = -(log_prob + self.target_entropy)
            diagnostics["temperature_loss"] = slope * math.log(temperature)
            self._adams["temperature"].gradients[0] = slope
            self._step_flat("temperature")
        self.targets["critics"].update(self.tau)
        return {**diagnostics, "temperature": temperature}

    @classmethod
    def _known_class(cls) -> type[ActorCritic]:
        return SAC

    def state(self) -> State:
        """Return optimisers, target networks, the temperature, and the state of the noise."""
        log_temperature = self.log_temperature.detach().cpu().numpy().copy()
        return {**super().state(), "log_temperature": log_temperature}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        super().load_state(state)
        with torch.no_grad():
            self.log_temperature.copy_(torch.from_numpy(np.array(state["log_temperature"])))
