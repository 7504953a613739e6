"""Proximal policy optimisation for agents without recurrent state."""

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
    """Maximise the clipped surrogate objective (Schulman et al. 2017, eq. 7) with Adam.

    Reads `agent.observation`, `action`, `agent_info.value`, `agent_info.log_prob`, `advantage` and
    `return_`, and `env.valid` if it is there. Advantages are used as they are: normalising them is
    a batch transform. The agent is left in sample mode.

    If `agent.importance_weight` is there, see `ImportanceWeights`, the objective of each step is multiplied
    by it, and `learner_value` and `learner_log_prob` take the place of those in `agent_info`: the policy is
    kept near the learner's at the start of the update instead of the one that sampled.

    Args:
        agent: what is trained; `agent.model.parameters()` must all take part in its `evaluate`.
        learning_rate: of Adam, whose epsilon is 1e-5.
        learning_rate_anneal_steps: environment steps over which the learning rate falls linearly
            to zero, counted at the start of each batch; None keeps it.
        epochs: passes over a batch.
        minibatches: updates per pass; steps are shuffled and split as evenly as possible.
        ratio_clip: how far the likelihood ratio may be from 1.
        value_clip: how far the value may move from the sampled one before its error stops
            shrinking; None leaves values alone.
        value_loss_coeff, entropy_loss_coeff: weights of `value_loss` (half the mean squared
            error) and of the entropy bonus.
        clip_grad_norm: largest norm of all gradients together; None only measures it.
        kl_limit: estimated divergence from the sampling policy above which no further update is made
            from this batch, checked before each update; None never stops.
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
        # Of numpy and on the CPU, so that minibatches are the same on every device.
        self._generator = np.random.default_rng(seed)
        self._parameters = list(agent.model.parameters())
        # Fused: a quarter of the time that the default takes for small networks on a CPU.
        # Epsilon 1e-5, not torch's 1e-8, as in the usual implementations of PPO (Huang et al. 2022, detail
        # 3).
        self._adam = LazyAdam(self._parameters, lr=learning_rate, eps=1e-5, fused=True)

    def _check_kind(self, agent: Any) -> None:
        """Raise TypeError for an agent whose batches another PPO reads."""
        # A subclass that makes inputs of its own knows what its agents need.
        if type(self).construct_agent_inputs is not PPO.construct_agent_inputs:
            return
        for several, other in (
            (hasattr(agent, "learning_groups"), "MultiAgentPPO"),
            (agent.recurrent, "RecurrentPPO"),
        ):
            if several:
                raise TypeError(
                    f"{type(self).__name__}: agent: expected a single agent without a memory, got "
                    f"{type(agent).__name__}; {other} takes it"
                )

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the fields that are read of a batch."""
        return ["agent.observation", *paths_of_steps(samples).values()]

    @property
    def trained_parameters(self) -> list[Any]:
        """The parameters that the optimiser changes, those of the agent's model when this was made."""
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
        """Run the epochs and return the means of `loss`'s diagnostics over minibatches, and more.

        `gradient_norm` is taken before clipping; `epochs` counts complete ones; `early_stop` is 1
        if `should_stop` ended the batch, else 0.

        Raises:
            ValueError: if a field is missing, or there are fewer valid steps than minibatches.
            FloatingPointError: if a loss or gradient is not finite; the parameters are unharmed.
        """
        inputs = self.construct_agent_inputs(samples)
        if not isinstance(inputs.return_, Tensor):
            raise ValueError(
                f"{type(self).__name__}: agent.return_: expected one array, got a tree of "
                f"{list(getattr(inputs.return_, '_fields', ()))}; MultiAgentPPO takes several agents"
            )
        # The runner has counted this batch already; the first one is to have the whole rate.
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

        On the CPU they are views, which cost some microseconds per field, so they are made anew
        for each batch: views that were kept would point to the wrong side of a switching array.
        """
        flat = partial(flat_tensors, samples, device=self.agent.device, who=type(self).__name__)
        fields = {name: flat(path) for name, path in paths_of_steps(samples).items()}
        return PpoInputs(agent={"observation": flat("agent.observation")}, **fields)

    def minibatches(self, inputs: PpoInputs) -> Iterator[PpoInputs]:
        """Yield the minibatches of one epoch; every valid step is in exactly one of them."""
        if inputs.valid is None:
            steps = np.arange(len(inputs.return_))
        else:
            # Left out before they are shuffled, so that all minibatches have the same number of steps that
            # count.
            steps = np.flatnonzero(inputs.valid.cpu().numpy())
        if len(steps) < self.n_minibatches:
            raise ValueError(
                f"PPO: expected at least one step for each of {self.n_minibatches} minibatches, "
                f"got {len(steps)} valid steps"
            )
        shuffled = torch.from_numpy(self._generator.permutation(steps))
        chosen = replace(inputs, valid=None)  # what is not valid has been left out
        # Not `chunk`, which may return fewer parts than asked for: 5 for 10 steps in 6 minibatches.
        for indices in shuffled.to(self.agent.device).tensor_split(self.n_minibatches):
            yield chosen.select(indices)

    def loss(self, inputs: PpoInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a minibatch and diagnostics, each a mean over its valid steps.

        `minibatches` leaves invalid steps out; a subclass whose minibatches are whole sequences
        passes them on with their mask.

        `approx_kl` is the mean of (ratio - 1) - log ratio (Schulman 2020, "Approximating KL
        divergence", estimator k3), `clip_fraction` the share of ratios outside of the clip range.
        """
        log_prob, entropy, value = self.agent.evaluate(action=inputs.action, **inputs.agent)
        log_ratio = log_prob - inputs.log_prob
        # A logarithm above 88 makes it infinite in float32. The loss or its gradient is then infinite or NaN,
        # and the update is refused.
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
        if self.entropy_loss_coeff:  # without it the way back through the entropy is saved
            loss = loss - self.entropy_loss_coeff * mean_entropy
        # Without gradients, since diagnostics would keep the graph of the loss alive.
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
        """Return whether to leave this batch, judged before each update."""
        return self.kl_limit is not None and diagnostics["approx_kl"] > self.kl_limit

    def update(self, loss: Tensor) -> float:
        """Take one step of the optimiser and return the norm of the gradient before clipping."""
        # What zero_grad does, without the profiling around it, which takes as long as Adam's step.
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
        # clip_grad_norm_ does the same in nearly three times as long, as it sorts by device first.
        # All gradients have one norm, so that clipping keeps their direction.
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
            # Without it a resumed run would shuffle its batches as the first ones of the run were.
            "generator": self._generator.bit_generator.state,
        }

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        self._adam.load_state(state["optimizer"])
        self._generator.bit_generator.state = state["generator"]

    def _run_epoch(self, inputs: PpoInputs, history: dict[str, list[float]]) -> bool:
        """Return whether the epoch was cut short."""
        for minibatch in self.minibatches(inputs):
            loss, tensors = self.loss(minibatch)
            diagnostics = {name: float(value) for name, value in tensors.items()}
            for name, value in diagnostics.items():
                history[name].append(value)
            # Before the update, so that the parameters are still those of the last good one.
            if not math.isfinite(loss.item()):
                raise FloatingPointError(
                    f"PPO: the loss is not finite ({loss.item()}); diagnostics: {diagnostics}"
                )
            # Looked at before each update and not after an epoch: it may take few updates to go much too far.
            if self.should_stop(diagnostics):
                return True
            history["gradient_norm"].append(self.update(loss))
        return False

    def _squared_error(self, value: Tensor, inputs: PpoInputs) -> Tensor:
        error = (value - inputs.return_).square()
        if self.value_clip is None:
            return error
        # As the usual implementations have it; Andrychowicz et al. 2021 found that it hurts, so it can be
        # left out.
        moved = (value - inputs.value).clamp(-self.value_clip, self.value_clip)
        # The worse of the two, as with the policy.
        return torch.max(error, (inputs.value + moved - inputs.return_).square())


def mean(x: Tensor, valid: Tensor | None) -> Tensor:
    """Return the mean of `x` [N] over valid entries; the values of the others do not matter."""
    if valid is None:
        return x.mean()
    # Not x * valid, in which a NaN that does not count would remain one. The clamp is for minibatches in
    # which nothing counts: their mean is 0, and not 0 / 0.
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def explained_variance(inputs: PpoInputs) -> float:
    """Return 1 - var(return - value) / var(return) over valid steps; NaN for constant returns."""
    return_, value = inputs.return_.double(), inputs.value.double()
    if inputs.valid is not None:
        return_, value = return_[inputs.valid], value[inputs.valid]
    # Of these very steps, not an estimate for others, which would be NaN for a single one.
    variance = float(return_.var(correction=0))
    residual = float((return_ - value).var(correction=0))
    return 1 - residual / variance if variance > 0 else math.nan
