"""Recurrent deep Q-learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map
from parllel.replays import Sequences
from parllel.runs.names import suggest_names
from parllel.torch.agents.recurrent_q_agent import RecurrentQAgent
from parllel.torch.algos.dqn import DQN
from parllel.types import Tree


@dataclass
class SequenceInputs:
    """A batch of n sequences of P positions; see `parllel.replays.Sequences`.

    Attributes:
        agent: keyword arguments of `agent.action_values`, leaves [P, n, ...], with numpy resets.
        warm_up: number of positions that only compute a state.
        action: int64 [P, n].
        reward, discount: [length, n] float32; valid: [length, n] bool; next_position: [length, n] int64.
        weight: [n] float32.
    """

    agent: dict[str, Any]
    warm_up: int
    action: Tensor
    reward: Tensor
    discount: Tensor
    valid: Tensor
    next_position: Tensor
    weight: Tensor


class R2D1(DQN):
    """Recurrent deep Q-learning from stored states (Kapturowski et al. 2019), in one process.

    Learns from the sequences of a `SequenceReplay`. The first positions only turn the stored state into one
    of the current network (warm-up, called burn-in in the paper), without gradients. The targets are n-step
    double Q-learning targets with the value rescaling of Pohlen et al. 2018:

        y = h(reward + discount * inverse_h(Q_target(s', argmax over a of Q(s', a))))

    where `h(x) = sign(x) (sqrt(abs(x) + 1) - 1) + 0.001 x`.

    The loss is the mean of `weight * huber(Q(s, a) - y)` over valid steps. The replay mixes the mean and the
    largest absolute error of a sequence to its priority.

    Args:
        agent: the agent to train.
        rescale_values: whether to use h; otherwise it is the identity.
        others: see `DQN`.

    Raises:
        ValueError, TypeError: see `DQN`.
    """

    batch_class = Sequences
    agent: RecurrentQAgent  # type: ignore[assignment]

    @suggest_names()
    def __init__(
        self,
        agent: RecurrentQAgent,
        *,
        learning_rate: float,
        learning_rate_anneal_steps: int | None,
        double: bool,
        rescale_values: bool,
        target_update_interval: int,
        tau: float,
        huber_delta: float | None,
        clip_grad_norm: float | None,
        initial_epsilon: float | None,
        final_epsilon: float,
        epsilon_anneal_steps: int,
        update: Literal["auto", "autograd"] = "auto",
    ) -> None:
        super().__init__(
            agent,
            learning_rate=learning_rate,
            learning_rate_anneal_steps=learning_rate_anneal_steps,
            double=double,
            target_update_interval=target_update_interval,
            tau=tau,
            huber_delta=huber_delta,
            clip_grad_norm=clip_grad_norm,
            initial_epsilon=initial_epsilon,
            final_epsilon=final_epsilon,
            epsilon_anneal_steps=epsilon_anneal_steps,
            update=update,
        )
        self.rescale_values = rescale_values

    def _check_kind(self, agent: Any) -> None:
        """Raise TypeError for an agent that this class cannot train."""
        if not isinstance(agent, RecurrentQAgent):
            raise TypeError(
                f"{type(self).__name__}: agent: expected a RecurrentQAgent, got a {type(agent).__name__}"
            )

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the fields whose sequences are learned."""
        return [*(super().reads(samples) or ()), "agent.initial_rnn_state"]

    def construct_agent_inputs(self, samples: Sequences) -> SequenceInputs:  # type: ignore[override]
        """Return the batch as tensors, which are valid until the replay draws the next one."""
        batch: Any = self._tensors.of(samples)
        agent: dict[str, Tree] = {
            "observation": batch.observation,
            "initial_rnn_state": batch.initial_rnn_state,
            # Not a tensor: columns are cut at resets in numpy.
            "reset": samples.reset,
        }
        if self.agent.uses_prev_action:
            agent["prev_action"] = batch.previous_action
        return SequenceInputs(
            agent=agent,
            warm_up=samples.warm_up,
            action=batch.action.long(),
            reward=batch.reward,
            discount=batch.discount,
            valid=batch.valid,
            next_position=batch.next_position,
            weight=batch.weight,
        )

    def values_after_warm_up(self, model: nn.Module, inputs: SequenceInputs) -> Tensor:
        """Return a model's values [P - warm_up, n, n_actions] of the positions after the warm-up."""
        W, agent = inputs.warm_up, dict(inputs.agent)
        reset: NDArray[np.bool_] = agent.pop("reset")
        state = agent.pop("initial_rnn_state")
        if W:
            # No gradients: they would flow into a state that was stored long ago.
            with torch.no_grad():
                before = buffer_map(lambda leaf: leaf[:W], agent)
                state = self.agent.state_after(
                    model, **before, initial_rnn_state=state, reset=reset[:W]
                )
        after = buffer_map(lambda leaf: leaf[W:], agent)
        return self.agent.values_of(model, **after, initial_rnn_state=state, reset=reset[W:])

    def loss(self, inputs: SequenceInputs) -> tuple[Tensor, Tensor, dict[str, Tensor]]:  # type: ignore[override]
        """Return the loss of a batch, the absolute errors [length, n], and diagnostics of valid steps."""
        values = self.values_after_warm_up(self.agent.model, inputs)
        # What is not valid may be NaN, which even a loss of zero would pass on to the gradients.
        target = torch.where(inputs.valid, self.sequence_target(inputs, values.detach()), 0.0)
        W, length = inputs.warm_up, len(inputs.reward)
        action = inputs.action[W : W + length] - self.agent.start
        # Actions of steps that are not valid may be anything.
        action = torch.where(inputs.valid, action, 0)
        value = values[:length].gather(-1, action.unsqueeze(-1)).squeeze(-1)
        n = inputs.valid.sum().clamp(min=1)

        def mean(x: Tensor) -> Tensor:
            return torch.where(inputs.valid, x, 0.0).sum() / n

        loss = mean(inputs.weight * self.error_loss(value, target))
        errors = (value.detach() - target).abs()
        diagnostics = {
            "q_value": mean(value.detach()),
            "target": mean(target),
            "td_error": mean(errors),
        }
        return loss, errors, diagnostics

    @torch.no_grad()
    def sequence_target(self, inputs: SequenceInputs, values: Tensor) -> Tensor:
        """Return the targets y [length, n].

        values: of the learned network, [P - warm_up, n, n_actions].
        """
        next_values = self.values_after_warm_up(self.target_network.module, inputs)
        # Before the targets are taken from later positions, so each value is computed only once.
        chooser = values if self.double else next_values
        best = next_values.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
        value = best.gather(0, (inputs.next_position - inputs.warm_up).clamp(min=0))
        if self.rescale_values:
            value = unrescaled(value)
        target = inputs.reward + torch.where(inputs.discount != 0, inputs.discount * value, 0.0)
        return rescaled(target) if self.rescale_values else target


# The paper's epsilon, which makes h invertible.
_SLOPE = 1e-3


def rescaled(x: Tensor) -> Tensor:
    """Return `sign(x) (sqrt(abs(x) + 1) - 1) + 0.001 x` (Pohlen et al. 2018, proposition A.2)."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + _SLOPE * x


def unrescaled(x: Tensor) -> Tensor:
    """Return the inverse of `rescaled`."""
    # In float64, since the difference under the square cancels most digits.
    y = x.double()
    root = ((1 + 4 * _SLOPE * (y.abs() + 1 + _SLOPE)).sqrt() - 1) / (2 * _SLOPE)
    return (y.sign() * (root.square() - 1)).to(x.dtype)
