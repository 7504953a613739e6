"""Deep Q-learning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from parllel.algos.arguments import check_counts, check_positive, check_share
from parllel.algos.off_policy_algorithm import OffPolicyAlgorithm
from parllel.buffers.samples import Samples
from parllel.replays.replay import Transitions
from parllel.runs.names import suggest_names
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.algos.adam import Adam
from parllel.torch.algos.batch_tensors import BatchTensors
from parllel.torch.algos.flat_q_update import FlatQUpdate
from parllel.torch.algos.q_inputs import QInputs, q_inputs
from parllel.torch.algos.target_network import TargetNetwork
from parllel.torch.known_models import known_q_model
from parllel.types import State, Tree

# Methods that a flat update replaces.
_OVERRIDES = ("construct_agent_inputs", "target", "loss", "update", "apply_gradients")
_INSTEAD = "give update='auto'"


class DQN(OffPolicyAlgorithm):
    """Deep Q-learning (Mnih et al. 2015) with Adam.

    Minimises the mean of `weight * huber(Q(s, a) - y)`, with the target

        y = reward + discount * Q_target(s', a')

    of a replay's transitions: with its `n_step`, reward and discount are those of several steps, and its
    discount is 0 where an episode terminated. `a'` maximises Q_target(s', .), or with `double` Q(s', .) (van
    Hasselt et al. 2016, eq. 4). A `QModel` with `dueling` gives duelling networks. The weights of a
    `PrioritizedReplay` are used, and the absolute errors become its new priorities (Schaul et al. 2016).

    The agent is left in sample mode.

    Args:
        agent: the agent to train.
        learning_rate: of Adam.
        learning_rate_anneal_steps: environment steps over which the learning rate falls linearly to zero;
            None keeps it.
        double: whether the learned network chooses the actions of targets.
        target_update_interval: gradient steps between updates of the target network.
        tau: fraction of the way that an update moves the target network; 1 copies the learned one.
        huber_delta: error up to which the loss is half the squared error; beyond it is linear (Huber 1964).
            1 clips errors as in Mnih et al. 2015; None uses half the squared error of all.
        clip_grad_norm: largest norm of all gradients together; None only measures it.
        initial_epsilon, final_epsilon, epsilon_anneal_steps: `before_sampling` sets the agent's probability
            of random actions, which changes linearly over this number of environment steps. With
            `initial_epsilon=None` the agent keeps its own, for example those of `epsilon_ladder`.
        update: how updates are computed. With "auto", the fastest of three ways that suits agent and class,
            see `update_method`; "flat" requires the first of them, and "autograd" uses the last.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: for another kind of agent, or an argument of the wrong type; with `update="flat"`, if agent
            or class do not allow it.

    Attributes:
        update_method: how the last batch was learned: "flat" with gradients that are written out, for a
            `QModel` that is fully connected; "flat parameters" with gradients by autograd, but a compiled
            optimiser; "autograd" with PyTorch only.
        target_network: the network that computes targets.
        n_updates: gradient steps so far.
    """

    @suggest_names()
    def __init__(
        self,
        agent: QAgent,
        *,
        learning_rate: float,
        learning_rate_anneal_steps: int | None,
        double: bool,
        target_update_interval: int,
        tau: float,
        huber_delta: float | None,
        clip_grad_norm: float | None,
        initial_epsilon: float | None,
        final_epsilon: float,
        epsilon_anneal_steps: int,
        update: Literal["auto", "autograd", "flat"] = "auto",
    ) -> None:
        who = type(self).__name__
        self._check_kind(agent)
        check_positive(
            who,
            learning_rate=learning_rate,
            learning_rate_anneal_steps=learning_rate_anneal_steps,
            huber_delta=huber_delta,
            clip_grad_norm=clip_grad_norm,
        )
        check_share(who, tau=tau)
        check_counts(
            who,
            target_update_interval=target_update_interval,
            epsilon_anneal_steps=epsilon_anneal_steps,
        )
        for name, value in (("initial_epsilon", initial_epsilon), ("final_epsilon", final_epsilon)):
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{who}: {name}: expected a probability, got {value}")
        if update not in ("auto", "autograd", "flat"):
            raise ValueError(
                f"{who}: update: expected 'auto', 'autograd' or 'flat', got {update!r}"
            )
        self.agent = agent
        self.learning_rate = learning_rate
        self.learning_rate_anneal_steps = learning_rate_anneal_steps
        self.double = double
        self.target_update_interval = target_update_interval
        self.tau = tau
        self.huber_delta = math.inf if huber_delta is None else float(huber_delta)
        self.clip_grad_norm = math.inf if clip_grad_norm is None else clip_grad_norm
        self.initial_epsilon, self.final_epsilon = initial_epsilon, final_epsilon
        self.epsilon_anneal_steps = epsilon_anneal_steps
        self.n_updates = 0
        self.update_method = None
        self._option = update
        self._parameters = list(agent.model.parameters())
        self._adam = Adam(
            self._parameters,
            lr=learning_rate,
            # A subclass that takes its own steps uses `optimizer`.
            flat=update != "autograd" and not self._overrides("apply_gradients"),
        )
        self.target_network = TargetNetwork(agent.model, self._adam)
        self._tensors = BatchTensors(agent.device)
        self._flat: FlatQUpdate | None = None
        self._made_of: tuple[Any, ...] = ()
        self._chosen = False
        if update == "flat":
            self._check_flat()

    def _check_kind(self, agent: Any) -> None:
        """Raise TypeError for an agent that this class cannot train."""
        if not isinstance(agent, QAgent):
            raise TypeError(
                f"{type(self).__name__}: agent: expected a QAgent, got a {type(agent).__name__}"
            )

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the fields whose transitions are learned."""
        return [
            "agent.observation",
            "agent.action",
            "env.reward",
            "env.terminated",
            "env.truncated",
        ]

    @property
    def trained_parameters(self) -> list[Any]:
        """The optimised parameters: the agent's model's, as of construction."""
        return list(self._parameters)

    @property
    def optimizer(self) -> torch.optim.Adam:
        """PyTorch's optimiser. Whoever asks for it keeps it: it takes all steps from then on."""
        return self._adam.optimizer

    def prepare(self) -> None:
        """Make the optimiser, and compile what updates need."""
        self._adam.prepare()

    def before_sampling(self, elapsed_steps: int) -> None:
        """Set the agent's epsilon."""
        # Hooks may have been added to the model; looking for them in each update takes too long.
        self._chosen = False
        if self.initial_epsilon is not None:
            done = min(max(elapsed_steps / self.epsilon_anneal_steps, 0.0), 1.0)
            epsilon = self.initial_epsilon + done * (self.final_epsilon - self.initial_epsilon)
            self.agent.set_epsilon(epsilon)

    def optimize_agent(self, elapsed_steps: int, samples: Transitions) -> Mapping[str, Any]:
        """Take a gradient step and return `loss`, `q_value`, `target`, `td_error` and more.

        `q_value` is the mean value of the actions taken, `target` the mean of y, `td_error` the mean
        absolute error, and `gradient_norm` is measured before clipping.

        Raises:
            FloatingPointError: if the loss or gradient is not finite; the parameters are unharmed.
        """
        learning_rate = self.anneal_learning_rate(elapsed_steps)
        inputs = self.construct_agent_inputs(samples)
        flat = self._flat_update(inputs)
        if flat is None:
            errors, diagnostics = self._autograd_step(inputs)
        else:
            errors, diagnostics = self._flat_step(flat, inputs)
        samples.update_priorities(errors)
        self.n_updates += 1
        if self.n_updates % self.target_update_interval == 0:
            self.update_target()
        return {**diagnostics, "learning_rate": learning_rate}

    def construct_agent_inputs(self, samples: Transitions) -> QInputs:
        """Return the batch as tensors, which are valid until the replay draws the next one."""
        return q_inputs(self._tensors.of(samples))

    @torch.no_grad()
    def target(self, inputs: QInputs) -> Tensor:
        """Return the targets y [n]."""
        values = self._values(self.target_network.module, inputs.next_agent)
        chooser = self.agent.action_values(**inputs.next_agent) if self.double else values
        value = values.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
        # Selected, because at the end of an episode the next observation may be anything: 0 * NaN is NaN.
        return inputs.reward + torch.where(inputs.discount != 0, inputs.discount * value, 0.0)

    def loss(self, inputs: QInputs) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the loss of a batch, the absolute errors [n], and diagnostics, each a mean."""
        action = inputs.action.long() - self.agent.start
        values = self.agent.action_values(**inputs.agent)
        value = values.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        target = self.target(inputs)
        loss = (inputs.weight * self.error_loss(value, target)).mean()
        errors = (value.detach() - target).abs()
        diagnostics = {
            "q_value": value.detach().mean(),
            "target": target.mean(),
            "td_error": errors.mean(),
        }
        return loss, errors, diagnostics

    def error_loss(self, value: Tensor, target: Tensor) -> Tensor:
        """Return the Huber loss of each value, or half the squared error, in the shape of the values."""
        if math.isinf(self.huber_delta):
            return 0.5 * (value - target).square()
        return functional.huber_loss(value, target, reduction="none", delta=self.huber_delta)

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
        (norm,) = self._adam.step(self.clip_grad_norm)
        return self._finite("gradient", norm)

    def update_target(self) -> None:
        """Move the target network. Called every `target_update_interval` gradient steps."""
        self.target_network.update(self.tau)

    def anneal_learning_rate(self, elapsed_steps: int) -> float:
        """Set and return the learning rate after `elapsed_steps`."""
        learning_rate = self.learning_rate
        if self.learning_rate_anneal_steps is not None:
            left = 1 - elapsed_steps / self.learning_rate_anneal_steps
            learning_rate *= min(max(left, 0.0), 1.0)
        self._adam.learning_rate = learning_rate
        return learning_rate

    def state(self) -> State:
        """Return the optimiser, the target network, and the number of updates."""
        return {
            "optimizer": self._adam.state(),
            "target": self.target_network.state(),
            "n_updates": self.n_updates,
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._adam.load_state(state["optimizer"])
        self.target_network.load_state(state["target"])
        self.n_updates = int(state["n_updates"])

    def _values(self, model: nn.Module, inputs: dict[str, Tree]) -> Tensor:
        """Return action values of a model, called as the agent calls its own."""
        others = {name: value for name, value in inputs.items() if name != "observation"}
        values: Tensor = model(inputs["observation"], **others)
        return values

    def _autograd_step(self, inputs: QInputs) -> tuple[NDArray[Any], dict[str, Any]]:
        self.agent.train_mode()
        try:
            loss, errors, diagnostics = self.loss(inputs)
            norm = self.update(loss)
        # Also after an error: later samples must not be drawn with dropout on.
        finally:
            self.agent.sample_mode()
        return errors.cpu().numpy(), {
            "loss": loss.detach(),
            **diagnostics,
            "gradient_norm": norm,
        }

    def _flat_step(
        self, flat: FlatQUpdate, inputs: QInputs
    ) -> tuple[NDArray[Any], dict[str, float]]:
        # Each time, because parameters may have been loaded since the last step.
        self._adam.gather()
        loss, errors, diagnostics = flat.loss(inputs)
        self._finite("loss", loss)
        norm = self._finite("gradient", float(flat.adam.norms()[0]))
        flat.adam.step(self.clip_grad_norm)
        self._adam.scatter()
        return errors, {"loss": loss, **diagnostics, "gradient_norm": norm}

    def _finite(self, what: str, value: float) -> float:
        if not math.isfinite(value):
            raise FloatingPointError(f"{type(self).__name__}: the {what} is not finite: {value}")
        return value

    def _flat_update(self, inputs: QInputs) -> FlatQUpdate | None:
        """Return what computes the loss with gradients that are written out; None for autograd."""
        if self._chosen:
            return self._flat
        self._chosen = True
        adam = self._adam.prepare()
        self.update_method = "autograd" if adam is None else "flat parameters"
        try:
            model = self._check_flat()
            assert adam is not None
            networks = (model.encoder, model.actions, model.state_value)
            activations = [getattr(network, "activation", None) for network in networks]
            made_of = (adam, model, activations, self.double, self.huber_delta)
            if self._flat is None or made_of != self._made_of:
                self._flat = FlatQUpdate(
                    model,
                    self.target_network,
                    adam,
                    start=self.agent.start,
                    double=self.double,
                    huber_delta=self.huber_delta,
                )
                self._made_of = made_of
            self._flat.check(inputs)
        except (TypeError, ValueError) as error:
            self._flat = None
            if self._option == "flat":
                raise TypeError(str(error)) from None
            return None
        self.update_method = "flat"
        return self._flat

    def _check_flat(self) -> Any:
        """Return the model, after checking that its gradients can be written out.

        Raises:
            TypeError, ValueError: if not.
        """
        who = f"{type(self).__name__}: update='flat'"
        for name in (*_OVERRIDES, "error_loss"):
            if self._overrides(name):
                raise TypeError(f"{who}: {name} is overridden, but would not be called; {_INSTEAD}")
        why = None if self._adam.is_flat else self._adam.why_not_flat()
        if why is not None:
            raise TypeError(f"{who}: {why}; {_INSTEAD}")
        model: Any = known_q_model(self.agent, who, _INSTEAD)
        if [id(p) for p in model.parameters()] != [id(p) for p in self._parameters]:
            raise ValueError(f"{who}: the agent's model has been replaced; {_INSTEAD}")
        return model

    def _overrides(self, name: str) -> bool:
        """Return whether there is a method of a subclass, or of this object, in place of this class's."""
        return name in vars(self) or getattr(type(self), name) is not getattr(DQN, name)
