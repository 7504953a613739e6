"""Behavior cloning, and DAgger with `LabelActions`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from parllel.algos.algorithm import Algorithm
from parllel.algos.arguments import check_counts, check_positive, check_seed
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.algos.adam import Adam
from parllel.torch.algos.ppo_inputs import flat_tensors
from parllel.types import BatchSpec, State


class BehaviorCloning(Algorithm):
    """Maximise the likelihood of an expert's actions with Adam.

    Reads `agent.observation`, the expert's actions, and `env.valid` if it exists. With `LabelActions` the
    agent samples and the expert labels, so the agent learns in the states that it visits itself (DAgger,
    Ross et al. 2011). If the expert samples, its actions are in `agent.action`. Values are not trained. The
    agent is left in sample mode.

    Args:
        agent: the agent to train: a single agent without recurrent state.
        learning_rate: of Adam.
        epochs: passes over a batch.
        minibatches: updates per pass; steps are shuffled and split as evenly as possible.
        clip_grad_norm: largest norm of all gradients together; None only measures it.
        labels: path of the expert's actions.
        seed: of the shuffling.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: for another kind of agent, if an argument is not a number, or `epochs` or `minibatches`
            is not an integer.

    Attributes:
        update_method: "flat parameters" if one compiled pass clips gradients and updates all parameters,
            which need to be float32 on the CPU; otherwise "autograd".
    """

    def __init__(
        self,
        agent: PgAgent,
        *,
        learning_rate: float = 1e-3,
        epochs: int = 4,
        minibatches: int = 4,
        clip_grad_norm: float | None = None,
        labels: str = "agent.expert_action",
        seed: int,
    ) -> None:
        check_counts("BehaviorCloning", epochs=epochs, minibatches=minibatches)
        check_positive(
            "BehaviorCloning", learning_rate=learning_rate, clip_grad_norm=clip_grad_norm
        )
        check_seed("BehaviorCloning", seed)
        # Log probabilities of several agents are a tree, and steps of a recurrent agent cannot be shuffled.
        if not isinstance(agent, PgAgent) or isinstance(agent, EnsembleAgent) or agent.recurrent:
            raise TypeError(
                "BehaviorCloning: agent: expected a single agent with a policy and no recurrent state, "
                f"got a {type(agent).__name__}"
            )
        self.agent = agent
        self.epochs, self.n_minibatches = epochs, minibatches
        self.clip_grad_norm = math.inf if clip_grad_norm is None else clip_grad_norm
        self.labels = labels
        self._generator = np.random.default_rng(seed)
        self._parameters = list(agent.model.parameters())
        self._adam = Adam(self._parameters, lr=learning_rate)

    # The labels are the target, whichever policy sampled.
    on_policy = False

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the paths of the batch fields that updates read."""
        valid = ["env.valid"] if getattr(samples.env, "valid", None) is not None else []
        return ["agent.observation", self.labels, *valid]

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
                f"BehaviorCloning: minibatches: expected at most {batch_spec.size}, the steps of a batch "
                f"(T={batch_spec.T}, B={batch_spec.B}), got {self.n_minibatches}"
            )

    def prepare(self) -> None:
        """Create the optimiser."""
        self._adam.prepare()

    def optimize_agent(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Run the epochs and return means over minibatches: `loss`, `entropy`, `gradient_norm`.

        `loss` is the negative log-likelihood of the expert's actions, `gradient_norm` is taken before
        clipping.

        Raises:
            ValueError: if a field is missing, or there are fewer valid steps than minibatches.
            FloatingPointError: if a loss or gradient is not finite; the parameters are unharmed.
        """
        device, who = self.agent.device, "BehaviorCloning"
        observation = flat_tensors(samples, "agent.observation", device, who)
        labels = flat_tensors(samples, self.labels, device, who)
        steps = self._steps(samples)
        flat = self._adam.prepare()
        self.update_method = "autograd" if flat is None else "flat parameters"
        history: dict[str, list[float]] = defaultdict(list)
        self.agent.train_mode()
        try:
            for _ in range(self.epochs):
                shuffled = torch.from_numpy(self._generator.permutation(steps)).to(device)
                for indices in shuffled.tensor_split(self.n_minibatches):
                    chosen = buffer_map(
                        lambda leaf, indices=indices: leaf.index_select(0, indices),
                        (observation, labels),
                    )
                    for name, value in self._update(*chosen).items():
                        history[name].append(value)
        # Also after an error: later samples must not be drawn with dropout on.
        finally:
            self.agent.sample_mode()
        return {name: math.fsum(values) / len(values) for name, values in history.items()}

    def _steps(self, samples: Samples) -> Any:
        """Return the indices of valid steps."""
        valid = getattr(samples.env, "valid", None)
        steps = (
            np.arange(np.asarray(samples.env.reward).size)
            if valid is None
            else np.flatnonzero(np.asarray(valid))
        )
        if len(steps) < self.n_minibatches:
            raise ValueError(
                f"BehaviorCloning: expected at least one step for each of {self.n_minibatches} "
                f"minibatches, got {len(steps)} valid steps"
            )
        return steps

    def _update(self, observation: Any, labels: Any) -> dict[str, float]:
        """Take an optimiser step and return its diagnostics."""
        log_prob, entropy, _ = self.agent.evaluate(observation, labels)
        loss = -log_prob.mean()
        for parameter in self._parameters:
            parameter.grad = None
        if not math.isfinite(loss.item()):
            raise FloatingPointError(
                f"BehaviorCloning: the loss is not finite: it is {loss.item()}"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        (norm,) = self._adam.step(self.clip_grad_norm)
        if not math.isfinite(norm):
            raise FloatingPointError(
                f"BehaviorCloning: the gradient is not finite: its norm is {norm}"
            )
        return {"loss": loss.item(), "entropy": entropy.mean().item(), "gradient_norm": norm}

    def state(self) -> State:
        """Return the optimiser and the state of the shuffling."""
        return {
            "optimizer": self._adam.state(),
            "generator": self._generator.bit_generator.state,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._adam.load_state(state["optimizer"])
        self._generator.bit_generator.state = state["generator"]
