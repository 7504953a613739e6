"""Proximal policy optimisation of agents without recurrent state."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parllel.algos.algorithm import Algorithm
from parllel.buffers.samples import Samples
from parllel.runs.names import suggest_names
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.algos.arguments import check_counts, check_positive, check_seed
from parllel.torch.algos.lazy_adam import LazyAdam
from parllel.torch.algos.ppo_inputs import PpoInputs, flat_tensors, paths_of_steps
from parllel.types import BatchSpec, State


class PPO(Algorithm):
    """Proximal policy optimisation: the clipped surrogate objective (Schulman et al. 2017, eq. 7) with Adam.

    Reads `agent.observation`, `action`, `agent_info.value`, `agent_info.log_prob`, `advantage` and
    `return_`, and `env.valid` if it exists. Advantages are used unchanged; normalise them with
    a batch transform. The agent is left in sample mode.

    If `agent.importance_weight` exists (see `ImportanceWeights`), the objective of each step is multiplied
    by it, and `learner_value` and `learner_log_prob` replace those of `agent_info`: the policy is kept near
    the learner's policy at the start of the update, not near the policy that sampled.

    Args:
        agent: the agent to train. All of `agent.model.parameters()` must take part in its `evaluate`.
        learning_rate: of Adam, whose epsilon is 1e-5.
        learning_rate_anneal_steps: environment steps over which the learning rate falls linearly
            to zero, counted at the start of each batch; None keeps it.
        epochs: passes over a batch.
        minibatches: updates per pass; steps are shuffled and split as evenly as possible.
        ratio_clip: largest distance of the likelihood ratio from 1.
        value_clip: largest distance of the value from the sampled one, beyond which moving further does
            not lower its error; None disables value clipping.
        value_loss_coeff, entropy_loss_coeff: weights of `value_loss` (half the mean squared
            error) and of the entropy bonus.
        clip_grad_norm: largest norm of all gradients together; None only measures it.
        kl_limit: estimated divergence from the sampling policy above which the rest of the batch is
            skipped, checked before each update; None disables the limit.
        seed: of the shuffling.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number, or `epochs` or `minibatches` is not an integer.
    """

    @suggest_names()
    def __init__(
        self,
        agent: PgAgent,
        *,
        learning_rate: float,
        learning_rate_anneal_steps: int | None,
        epochs: int,
        minibatches: int,
        ratio_clip: float,
        value_clip: float | None,
        value_loss_coeff: float,
        entropy_loss_coeff: float,
        clip_grad_norm: float | None,
        kl_limit: float | None,
        seed: int,
    ) -> None:
        if not hasattr(agent, "model"):
            raise TypeError(
                f"{type(self).__name__}: agent: expected an agent with a model, "
                f"got a {type(agent).__name__}"
            )
        self._check_kind(agent)
        check_counts("PPO", epochs=epochs, minibatches=minibatches)
        check_positive(
            "PPO",
            learning_rate=learning_rate,
            learning_rate_anneal_steps=learning_rate_anneal_steps,
            ratio_clip=ratio_clip,
            value_clip=value_clip,
            clip_grad_norm=clip_grad_norm,
            kl_limit=kl_limit,
        )
        check_seed("PPO", seed)
        self.agent = agent
        self.learning_rate = learning_rate
        self.learning_rate_anneal_steps = learning_rate_anneal_steps
        self.epochs = epochs
        self.n_minibatches = minibatches
        self.ratio_clip = ratio_clip
        self.value_clip = value_clip
        self.value_loss_coeff = value_loss_coeff
        self.entropy_loss_coeff = entropy_loss_coeff
        self.clip_grad_norm = math.inf if clip_grad_norm is None else clip_grad_norm
        self.kl_limit = kl_limit
        # A numpy generator on the CPU, so that minibatches are the same on every device.
        self._generator = np.random.default_rng(seed)
        self._parameters = list(agent.model.parameters())
        # Fused takes a quarter of the default's time for small networks on a CPU.
        # Epsilon 1e-5 instead of torch's 1e-8, as in common implementations of PPO (Huang et al. 2022,
        # detail 3).
        self._adam = LazyAdam(self._parameters, lr=learning_rate, eps=1e-5, fused=True)

    def _check_kind(self, agent: Any) -> None:
        """Raise TypeError for an agent that needs another class of PPO."""
        # A subclass that builds its own inputs knows what its agents need.
        if type(self).construct_agent_inputs is not PPO.construct_agent_inputs:
            return
        for several, other in (
            (hasattr(agent, "learning_groups"), "MultiAgentPPO"),
            (agent.recurrent, "RecurrentPPO"),
        ):
            if several:
                raise TypeError(
                    f"{type(self).__name__}: agent: expected a single agent without recurrent state, got "
                    f"{type(agent).__name__}. Use {other}"
                )

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the fields that are read of a batch."""
        return ["agent.observation", *paths_of_steps(samples).values()]

    @property
    def trained_parameters(self) -> list[Any]:
        """The optimised parameters: the agent's model's, as of construction."""
        return list(self._parameters)

    @property
    def optimizer(self) -> torch.optim.Adam:
        """What takes the steps."""
        return self._adam.optimizer

    def check_batch_spec(self, batch_spec: BatchSpec) -> None:
        """Raise ValueError if batches of this size have fewer steps than there are minibatches."""
        if self.n_minibatches > batch_spec.size:
            raise ValueError(
                f"PPO: minibatches: expected at most {batch_spec.size}, the steps of a batch "
                f"(T={batch_spec.T}, B={batch_spec.B}), got {self.n_minibatches}"
            )

    def prepare(self) -> None:
        """Make the optimiser."""
        self._adam.prepare()

    def optimize_agent(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Run the epochs and return the diagnostics of `loss`, averaged over minibatches, and more.

        `gradient_norm` is measured before clipping, `epochs` is the number of complete epochs, and
        `early_stop` is 1 if `should_stop` ended the batch, else 0.

        Raises:
            ValueError: if a field is missing, or there are fewer valid steps than minibatches.
            FloatingPointError: if a loss or gradient is not finite; the parameters are unharmed.
        """
        inputs = self.construct_agent_inputs(samples)
        if not isinstance(inputs.return_, Tensor):
            raise ValueError(
                f"{type(self).__name__}: agent.return_: expected one array, got a tree of "
                f"{list(getattr(inputs.return_, '_fields', ()))}; MultiAgentPPO trains several agents"
            )
        # The runner has already counted this batch, but the first batch gets the full learning rate.
        learning_rate = self.anneal_learning_rate(elapsed_steps - inputs.n_steps)
        history: dict[str, list[float]] = defaultdict(list)
        self.agent.train_mode()
        epochs, stopped = 0, False
        try:
            while epochs < self.epochs and not stopped:
                stopped = self._run_epoch(inputs, history)
                epochs += not stopped
        # Also after an error: what is sampled later must not be sampled with dropout.
        finally:
            self.agent.sample_mode()
        return {
            **{name: math.fsum(values) / len(values) for name, values in history.items()},
            "explained_variance": explained_variance(inputs),
            "learning_rate": learning_rate,
            "epochs": epochs,
            "early_stop": int(stopped),
        }

    def construct_agent_inputs(self, samples: Samples) -> PpoInputs:
        """Return the batch as tensors [T * B, ...].

        On the CPU they are views, which cost a few microseconds per field. They are created for each
        batch, because kept views would point to the wrong side of a switching array.
        """
        flat = partial(flat_tensors, samples, device=self.agent.device, who=type(self).__name__)
        fields = {name: flat(path) for name, path in paths_of_steps(samples).items()}
        return PpoInputs(agent={"observation": flat("agent.observation")}, **fields)

    def minibatches(self, inputs: PpoInputs) -> Iterator[PpoInputs]:
        """Yield the minibatches of one epoch; every valid step is in exactly one of them."""
        if inputs.valid is None:
            steps = np.arange(len(inputs.return_))
        else:
            # Invalid steps are dropped before shuffling, so that minibatches have equal numbers of valid
            # steps.
            steps = np.flatnonzero(inputs.valid.cpu().numpy())
        if len(steps) < self.n_minibatches:
            raise ValueError(
                f"PPO: expected at least one step for each of {self.n_minibatches} minibatches, "
                f"got {len(steps)} valid steps"
            )
        shuffled = torch.from_numpy(self._generator.permutation(steps))
        chosen = replace(inputs, valid=None)  # invalid steps have been dropped
        # Not `chunk`, which may return fewer parts than requested: 5 for 10 steps in 6 minibatches.
        for indices in shuffled.to(self.agent.device).tensor_split(self.n_minibatches):
            yield chosen.select(indices)

    def loss(self, inputs: PpoInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a minibatch and diagnostics, each a mean over its valid steps.

        `minibatches` drops invalid steps; a subclass whose minibatches are whole sequences keeps them
        and passes the mask.

        `approx_kl` is the mean of (ratio - 1) - log ratio (Schulman 2020, "Approximating KL
        divergence", estimator k3), `clip_fraction` the share of ratios outside of the clip range.
        """
        log_prob, entropy, value = self.agent.evaluate(action=inputs.action, **inputs.agent)
        log_ratio = log_prob - inputs.log_prob
        # A log ratio above 88 overflows float32. The loss or its gradient is then infinite or NaN, and the
        # update is refused.
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.ratio_clip, 1 + self.ratio_clip)
        # The worse of the two: clipping never makes a change of the policy look better than it is (eq. 7).
        surrogate = torch.min(ratio * inputs.advantage, clipped * inputs.advantage)
        if inputs.weight is not None:
            surrogate = surrogate * inputs.weight

        policy_loss = -mean(surrogate, inputs.valid)
        value_loss = 0.5 * mean(self._squared_error(value, inputs), inputs.valid)
        mean_entropy = mean(entropy, inputs.valid)
        loss = policy_loss + self.value_loss_coeff * value_loss
        if (
            self.entropy_loss_coeff
        ):  # a zero coefficient saves the backward pass through the entropy
            loss = loss - self.entropy_loss_coeff * mean_entropy
        # Without gradients, otherwise diagnostics would keep the graph of the loss alive.
        with torch.no_grad():
            outside = ((ratio - 1).abs() > self.ratio_clip).to(ratio.dtype)
            diagnostics = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": mean_entropy.detach(),
                "approx_kl": mean(ratio - 1 - log_ratio, inputs.valid),
                "clip_fraction": mean(outside, inputs.valid),
            }
        return loss, diagnostics

    def should_stop(self, diagnostics: Mapping[str, float]) -> bool:
        """Return whether to skip the rest of the batch. Called before each update."""
        return self.kl_limit is not None and diagnostics["approx_kl"] > self.kl_limit

    def update(self, loss: Tensor) -> float:
        """Backpropagate, take an optimiser step, and return the gradient norm before clipping."""
        # zero_grad without its profiling hooks, which take as long as Adam's step.
        for parameter in self._parameters:
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call]
        return self.apply_gradients()

    def apply_gradients(self) -> float:
        """Clip the parameters' gradients, take a step, and return the norm before clipping.

        Raises:
            FloatingPointError: if the norm is not finite; the parameters are unharmed.
        """
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        # clip_grad_norm_ takes nearly three times as long, because it sorts by device first.
        # One norm for all gradients, so that clipping keeps their direction.
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))).item()
        if not math.isfinite(norm):
            raise FloatingPointError(f"PPO: the gradient is not finite: its norm is {norm}")
        if norm > self.clip_grad_norm:
            # The 1e-6 is that of `clip_grad_norm_`, for runs that can be compared.
            torch._foreach_mul_(gradients, self.clip_grad_norm / (norm + 1e-6))
        self.optimizer.step()
        return float(norm)

    def anneal_learning_rate(self, elapsed_steps: int) -> float:
        """Set and return the learning rate of a batch that began after `elapsed_steps`."""
        learning_rate = self.learning_rate
        if self.learning_rate_anneal_steps is not None:
            left = 1 - elapsed_steps / self.learning_rate_anneal_steps
            learning_rate *= min(max(left, 0.0), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        return learning_rate

    def state(self) -> State:
        """Return the optimiser and the state of the shuffling."""
        return {
            "optimizer": self._adam.state(),
            # Without the shuffling state, a resumed run would repeat the shuffles of the run's first batches.
            "generator": self._generator.bit_generator.state,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._adam.load_state(state["optimizer"])
        self._generator.bit_generator.state = state["generator"]

    def _run_epoch(self, inputs: PpoInputs, history: dict[str, list[float]]) -> bool:
        """Return whether the epoch was cut short."""
        for minibatch in self.minibatches(inputs):
            loss, tensors = self.loss(minibatch)
            diagnostics = {name: float(value) for name, value in tensors.items()}
            for name, value in diagnostics.items():
                history[name].append(value)
            # Before the update, so that the parameters are still from the last good one.
            if not math.isfinite(loss.item()):
                raise FloatingPointError(
                    f"PPO: the loss is not finite ({loss.item()}); diagnostics: {diagnostics}"
                )
            # Checked before each update, not after each epoch: a few updates may go much too far.
            if self.should_stop(diagnostics):
                return True
            history["gradient_norm"].append(self.update(loss))
        return False

    def _squared_error(self, value: Tensor, inputs: PpoInputs) -> Tensor:
        error = (value - inputs.return_).square()
        if self.value_clip is None:
            return error
        # As in common implementations. Optional, because Andrychowicz et al. 2021 found that it hurts.
        moved = (value - inputs.value).clamp(-self.value_clip, self.value_clip)
        # The worse of the two, as for the policy.
        return torch.max(error, (inputs.value + moved - inputs.return_).square())


def mean(x: Tensor, valid: Tensor | None) -> Tensor:
    """Return the mean of `x` [N] over valid entries. Other entries may hold anything, even NaN."""
    if valid is None:
        return x.mean()
    # Not x * valid, because 0 * NaN is NaN. The clamp makes the mean of a minibatch without valid entries
    # 0 instead of 0 / 0.
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def explained_variance(inputs: PpoInputs) -> float:
    """Return 1 - var(return - value) / var(return) over valid steps; NaN for constant returns."""
    return_, value = inputs.return_.double(), inputs.value.double()
    if inputs.valid is not None:
        return_, value = return_[inputs.valid], value[inputs.valid]
    # Population variance: the sample variance of a single step would be NaN.
    variance = float(return_.var(correction=0))
    residual = float((return_ - value).var(correction=0))
    return 1 - residual / variance if variance > 0 else math.nan
