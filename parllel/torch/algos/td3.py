"""Twin delayed deep deterministic policy gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from parllel.algos.arguments import check_counts, check_not_negative
from parllel.runs.names import suggest_names
from parllel.torch.agents.td3_agent import TD3Agent
from parllel.torch.algos.actor_critic import ActorCritic
from parllel.torch.algos.flat_actor_critic import FlatActorCritic


class TD3(ActorCritic):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, algorithm 1).

    With critics Q_k, the policy mu, and slow copies Q'_k and mu', each update takes a gradient step of

        target   y = r + discount * min_k Q'_k(s', clip(mu'(s') + noise, -1, 1))
        noise    clip(N(0, target_noise^2), -target_noise_clip, target_noise_clip)
        critics  sum_k E[weight (Q_k(s, a) - y)^2] / 2

    and every `policy_delay`-th update one of

        policy   -E[Q_1(s, mu(s))]

    after which both slow copies move by `tau`. Actions are scaled to [-1, 1], see `ActorCriticAgent`.

    Args:
        agent: the agent to train, which also has the noise of exploration.
        learning_rate: of both optimisers (Adam).
        tau: share by which the slow copies move in each update of the policy.
        policy_delay: number of updates of the critics per update of the policy.
        target_noise: standard deviation of the noise of target actions (target policy smoothing).
        target_noise_clip: bound of that noise.
        random_steps: number of environment steps at the start with uniformly random actions.
        seed: of the noise of updates.
        update: as in `SAC`.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument has the wrong type; with `update="flat"`, if agent, class or batch do not
            allow it.

    Attributes:
        update_method: as in `SAC`.
    """

    @suggest_names()
    def __init__(
        self,
        agent: TD3Agent,
        *,
        learning_rate: float,
        tau: float,
        policy_delay: int,
        target_noise: float,
        target_noise_clip: float,
        random_steps: int,
        seed: int,
        update: Literal["auto", "autograd", "flat"] = "auto",
    ) -> None:
        check_counts("TD3", policy_delay=policy_delay)
        check_not_negative("TD3", target_noise=target_noise, target_noise_clip=target_noise_clip)
        super().__init__(
            agent,
            TD3Agent,
            learning_rate=learning_rate,
            tau=tau,
            random_steps=random_steps,
            seed=seed,
            update=update,
        )
        self.policy_delay = policy_delay
        self.target_noise = target_noise
        self.target_noise_clip = target_noise_clip
        self.add_target("policy", agent.policy)

    def update(self, batch: Any) -> Mapping[str, Any]:
        """Take a step of the critics, and of the policy if it is due. Returns diagnostics."""
        diagnostics = self.update_critics(batch)
        if (self.n_updates + 1) % self.policy_delay == 0:
            loss = self.policy_loss(batch)
            diagnostics["policy_loss"] = loss.detach()
            diagnostics["policy_gradient_norm"] = self.step("policy", loss)
            for target in self.targets.values():
                target.update(self.tau)
        return diagnostics

    @torch.no_grad()
    def target(self, batch: Any) -> Tensor:
        """Return y of the class's docstring, [n]."""
        action = self.targets["policy"].module(batch.next_observation).tanh()
        noise = self.target_noise * self.noise(len(action)).to(action.dtype)
        clip = self.target_noise_clip
        action = (action + noise.clamp(-clip, clip)).clamp(-1, 1)
        value = self.targets["critics"].module(batch.next_observation, action).amin(dim=0)
        # Selected: where the episode terminated, the value may be anything, even NaN.
        bootstrap = torch.where(batch.discount > 0, batch.discount * value, 0.0)
        target: Tensor = batch.reward + bootstrap
        return target

    def policy_loss(self, batch: Any) -> Tensor:
        """Return the policy's loss."""
        action = self.agent.outputs(batch.observation).tanh()
        value: Tensor = self.agent.critics(batch.observation, action)[0]
        return -value.mean()

    def _update_by(self, flat: FlatActorCritic, batch: Any) -> Mapping[str, Any]:
        # Each time, because parameters may have been loaded since the last step.
        for adam in self.optimizers.values():
            adam.gather()
        at = flat.load(batch)
        clip = self.target_noise_clip
        noise = (self.target_noise * self.noise(at.n)).clamp_(-clip, clip).numpy()
        action = np.tanh(at.forward_target_policy()) + noise
        np.clip(action, -1, 1, out=at.next_unit)
        flat.compiled.soft_target(
            flat.target_values(),
            at.next_log_prob,
            0.0,
            batch.reward.numpy(),
            batch.discount.numpy(),
            at.target,
        )
        diagnostics = self._step_critics(flat, at.target, batch)
        if (self.n_updates + 1) % self.policy_delay == 0:
            np.tanh(at.forward_now(), out=at.unit)
            loss = -float(flat.action_values()[0].mean(dtype=np.float64))
            diagnostics["policy_loss"] = self.check_finite("policy", "loss", loss)
            rows = [at.rows[0], *[at.rows[0, :0]] * (len(at.rows) - 1)]
            gradient = flat.action_gradient(rows, -1 / at.n)
            np.multiply(gradient, 1 - np.square(at.unit), out=at.grad_outputs)
            at.backward_policy()
            diagnostics["policy_gradient_norm"] = self._step_flat("policy")
            for target in self.targets.values():
                target.update(self.tau)
        return diagnostics

    @classmethod
    def _known_class(cls) -> type[ActorCritic]:
        return TD3
