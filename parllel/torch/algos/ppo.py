"""Proximal policy optimisation of agents without recurrent state."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.algos.algorithm import Algorithm
from parllel.algos.arguments import check_counts, check_positive, check_seed
from parllel.algos.learner_group import LearnerGroup
from parllel.algos.ppo_fields import paths_of_steps
from parllel.buffers.samples import Samples
from parllel.runs.names import suggest_names
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.algos.adam import Adam
from parllel.torch.algos.flat_update import FlatUpdate
from parllel.torch.algos.ppo_inputs import PpoInputs, flat_tensors
from parllel.torch.algos.ppo_loss import means_of
from parllel.torch.algos.shared_updates import SharedUpdates
from parllel.torch.algos.update_method import REPLACED, UpdateMethod
from parllel.types import BatchSpec, State, class_path

_Loss: TypeAlias = tuple[float, dict[str, float], Callable[[], float]]


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
        update: how updates are computed. With "auto", the fastest of three ways that suits agent, class and
            batch, see `update_method`; "flat" requires the first of them, and "autograd" uses the last.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if an argument is not a number, or `epochs` or `minibatches` is not an integer; with
            `update="flat"`, if agent, class or batch do not allow it.

    Attributes:
        update_method: how the last batch was learned: "flat" with gradients that are written out, for the
            networks of this library; "flat parameters" with gradients by autograd, but loss and optimiser
            compiled; "autograd" with PyTorch only.
    """

    # Names of the agents, for subclasses that train several; set before `__init__`.
    _names: Sequence[str] = ()

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
        update: Literal["auto", "autograd", "flat"] = "auto",
    ) -> None:
        if not isinstance(getattr(agent, "model", None), nn.Module):
            raise TypeError(
                f"{type(self).__name__}: agent: expected an agent with a PyTorch model, got a "
                f"{class_path(agent)}"
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
        if update not in ("auto", "autograd", "flat"):
            raise ValueError(f"PPO: update: expected 'auto', 'autograd' or 'flat', got {update!r}")
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
        self.update_method = None
        self._updates = UpdateMethod(self, self._known_class(), self._names, update)
        # Epsilon 1e-5 instead of torch's 1e-8, as in common implementations of PPO (Huang et al. 2022,
        # detail 3).
        self._adam = Adam(
            self._parameters,
            groups=self._parameter_groups(),
            lr=learning_rate,
            eps=1e-5,
            # A subclass that takes its own steps uses `optimizer`.
            flat=update != "autograd" and not self._updates.overrides("apply_gradients"),
        )
        self._updates.use(self._adam)
        # With several learners.
        self._shared: SharedUpdates | None = None

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
        """PyTorch's optimiser. Whoever asks for it keeps it: it takes all steps from then on."""
        return self._adam.optimizer

    def check_batch_spec(self, batch_spec: BatchSpec) -> None:
        """Raise ValueError if batches of this size have fewer steps than there are minibatches."""
        if self.n_minibatches > batch_spec.size:
            raise ValueError(
                f"PPO: minibatches: expected at most {batch_spec.size}, the steps of a batch "
                f"(T={batch_spec.T}, B={batch_spec.B}), got {self.n_minibatches}"
            )

    def join(self, learners: LearnerGroup, batch_spec: BatchSpec) -> None:
        """Learn together with other processes: each update is that of one learner with the whole batch.

        Raises:
            TypeError: for a subclass that overrides how updates are computed, a model with batch
                normalisation, or parameters that are not float32 or float64 on the CPU.
        """
        for name in REPLACED:
            if name in vars(self) or getattr(type(self), name) is not getattr(PPO, name):
                raise TypeError(
                    f"{type(self).__name__} does not support several learners, because it overrides {name}"
                )
        self._shared = SharedUpdates(self, learners, batch_spec.B)

    def prepare(self) -> None:
        """Make the optimiser, and compile what updates need."""
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
        n_steps = inputs.n_steps
        if self._shared is not None:
            n_steps = self._shared.start_batch(inputs)
            self._check_steps(n_steps)
        # The runner has already counted this batch, but the first batch gets the full learning rate.
        learning_rate = self.anneal_learning_rate(elapsed_steps - n_steps)
        history: dict[str, list[float]] = defaultdict(list)
        flat = self._updates.start_batch(inputs, self._alive(inputs))
        self.update_method = self._updates.method
        self.agent.train_mode()
        epochs, stopped = 0, False
        try:
            while epochs < self.epochs and not stopped:
                stopped = self._run_epoch(inputs, history, flat)
                epochs += not stopped
        # Also after an error: what is sampled later must not be sampled with dropout, and the parameters of
        # the last good update are kept.
        finally:
            self.agent.sample_mode()
            self._updates.finish_batch()
        return {
            **{name: math.fsum(values) / len(values) for name, values in history.items()},
            **self._explained_variances(inputs),
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
        shuffled = self._shuffled(inputs)
        chosen = replace(inputs, valid=None)  # invalid steps have been dropped
        # Not `chunk`, which may return fewer parts than requested: 5 for 10 steps in 6 minibatches.
        for indices in shuffled.to(self.agent.device).tensor_split(self.n_minibatches):
            yield chosen.select(indices)

    def _shuffled(self, inputs: PpoInputs) -> Tensor:
        """Return the indices of all valid steps in the order of an epoch, int64."""
        if inputs.valid is None:
            steps = np.arange(len(inputs.return_))
        else:
            # Invalid steps are dropped before shuffling, so that minibatches have equal numbers of valid
            # steps.
            steps = np.flatnonzero(inputs.valid.cpu().numpy())
        self._check_steps(len(steps))
        return torch.from_numpy(self._generator.permutation(steps))

    def _check_steps(self, n: int) -> None:
        if n < self.n_minibatches:
            raise ValueError(
                f"PPO: expected at least one step for each of {self.n_minibatches} minibatches, "
                f"got {n} valid steps"
            )

    def loss(self, inputs: PpoInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a minibatch and diagnostics, each a mean over its valid steps.

        `minibatches` drops invalid steps; a subclass whose minibatches are whole sequences keeps them
        and passes the mask.

        `approx_kl` is the mean of (ratio - 1) - log ratio (Schulman 2020, "Approximating KL
        divergence", estimator k3), `clip_fraction` the share of ratios outside of the clip range.
        """
        found, outputs = self._updates.compiled_loss(inputs, self._coefficients())
        if found is not None:
            return found[0], tensors_of(self._diagnostics_of(found[1]))
        log_prob, entropy, value = outputs
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
        return self._norm_of_all(self._adam.step(self.clip_grad_norm))

    def anneal_learning_rate(self, elapsed_steps: int) -> float:
        """Set and return the learning rate of a batch that began after `elapsed_steps`."""
        learning_rate = self.learning_rate
        if self.learning_rate_anneal_steps is not None:
            left = 1 - elapsed_steps / self.learning_rate_anneal_steps
            learning_rate *= min(max(left, 0.0), 1.0)
        self._adam.learning_rate = learning_rate
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

    def _known_class(self) -> type[PPO]:
        """Return the class whose methods a flat update replaces."""
        return PPO

    def _parameter_groups(self) -> list[list[Any]]:
        """Return the parameters by group; the gradients of a group are clipped together."""
        return [self._parameters]

    def _alive(self, inputs: PpoInputs) -> Tensor | None:
        """Return which agents took part in each step, bool [N, K]; None if all did."""
        return None

    def _diagnostics_of(self, sums: NDArray[np.float64]) -> dict[str, float]:
        """Return the diagnostics of `loss`, from the sums of a compiled loss, [K, N_SUMS]."""
        return means_of(sums[0])

    def _explained_variances(self, inputs: PpoInputs) -> dict[str, float]:
        if self._shared is not None:
            return {"explained_variance": self._shared.explained_variance(inputs)}
        return {"explained_variance": explained_variance(inputs)}

    def _coefficients(self) -> NDArray[np.float64]:
        """Return the settings of the compiled loss, in its order."""
        value_clip = math.inf if self.value_clip is None else self.value_clip
        settings = (self.ratio_clip, value_clip, self.value_loss_coeff, self.entropy_loss_coeff)
        return np.array(settings, np.float64)

    def _norm_of_all(self, norms: list[float]) -> float:
        """Return the norm of the gradients of all groups. Raises FloatingPointError if it is not finite."""
        norm = math.sqrt(math.fsum(norm * norm for norm in norms))
        if not math.isfinite(norm):
            raise FloatingPointError(f"PPO: the gradient is not finite: its norm is {norm}")
        return norm

    def _run_epoch(
        self, inputs: PpoInputs, history: dict[str, list[float]], flat: FlatUpdate | None
    ) -> bool:
        """Return whether the epoch was cut short."""
        if self._shared is not None:
            losses = self._shared_losses(inputs, flat, self._shared)
        elif flat is None:
            losses = self._autograd_losses(inputs)
        else:
            losses = self._flat_losses(inputs, flat)
        for loss, diagnostics, update in losses:
            for name, value in diagnostics.items():
                history[name].append(value)
            # Before the update, so that the parameters are still from the last good one.
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"PPO: the loss is not finite ({loss}); diagnostics: {diagnostics}"
                )
            # Checked before each update, not after each epoch: a few updates may go much too far.
            if self.should_stop(diagnostics):
                return True
            history["gradient_norm"].append(update())
        return False

    def _autograd_losses(self, inputs: PpoInputs) -> Iterator[_Loss]:
        """Yield the loss of each minibatch, its diagnostics, and what makes the update."""
        for minibatch in self.minibatches(inputs):
            loss, tensors = self.loss(minibatch)
            diagnostics = {name: float(value) for name, value in tensors.items()}
            yield loss.item(), diagnostics, partial(self.update, loss)

    def _flat_losses(self, inputs: PpoInputs, flat: FlatUpdate) -> Iterator[_Loss]:
        """As `_autograd_losses`, with the same minibatches."""
        steps, coefficients = self._shuffled(inputs), self._coefficients()
        # As `tensor_split` cuts: the first parts have one step more.
        size, n_larger = divmod(len(steps), self.n_minibatches)
        sizes = [size + (number < n_larger) for number in range(self.n_minibatches)]
        ends = list(accumulate(sizes))
        flat.shuffle(steps, ends)
        for start, stop in pairwise((0, *ends)):
            loss, sums = flat.loss(start, stop, coefficients)
            yield loss, self._diagnostics_of(sums), partial(self._flat_step, flat)

    def _shared_losses(
        self, inputs: PpoInputs, flat: FlatUpdate | None, shared: SharedUpdates
    ) -> Iterator[_Loss]:
        """As `_autograd_losses`, with the minibatches of all learners."""
        update = self.apply_gradients if flat is None else partial(self._apply_flat, flat)
        losses = shared.losses(inputs, flat, self._generator, self._coefficients())
        for loss, diagnostics in losses:
            yield loss, diagnostics, update

    def _flat_step(self, flat: FlatUpdate) -> float:
        flat.backward()
        return self._apply_flat(flat)

    def _apply_flat(self, flat: FlatUpdate) -> float:
        norm = self._norm_of_all(flat.adam.norms().tolist())
        flat.adam.step(self.clip_grad_norm)
        return norm

    def _squared_error(self, value: Tensor, inputs: PpoInputs) -> Tensor:
        error = (value - inputs.return_).square()
        if self.value_clip is None:
            return error
        # As in common implementations. Optional, because Andrychowicz et al. 2021 found that it hurts.
        moved = (value - inputs.value).clamp(-self.value_clip, self.value_clip)
        # The worse of the two, as for the policy.
        return torch.max(error, (inputs.value + moved - inputs.return_).square())


def tensors_of(numbers: Mapping[str, float]) -> dict[str, Tensor]:
    """Return numbers as tensors, which `loss` returns."""
    found = torch.tensor(list(numbers.values()), dtype=torch.float64).unbind()
    return dict(zip(numbers, found, strict=True))


def mean(x: Tensor, valid: Tensor | None) -> Tensor:
    """Return the mean of `x` [N] over valid entries. Other entries may hold anything, even NaN."""
    if valid is None:
        return x.mean()
    # Not x * valid, because 0 * NaN is NaN. The clamp makes the mean of a minibatch without valid entries
    # 0 instead of 0 / 0.
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def explained_variance(inputs: PpoInputs) -> float:
    """Return 1 - var(return - value) / var(return) over valid steps; NaN for constant returns."""
    # numpy takes a fifth of PyTorch's time.
    return_, value = (
        field.cpu().numpy().astype(np.float64) for field in (inputs.return_, inputs.value)
    )
    if inputs.valid is not None:
        valid = inputs.valid.cpu().numpy()
        return_, value = return_[valid], value[valid]
    # Population variance: the sample variance of a single step would be NaN.
    variance, residual = float(return_.var()), float((return_ - value).var())
    return 1 - residual / variance if variance > 0 else math.nan
