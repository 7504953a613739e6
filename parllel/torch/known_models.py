"""Recognition of agents whose networks can be computed without calling their modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.torch.agents.actor_critic_agent import ActorCriticAgent
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.agents.pg_agent import CategoricalPgAgent, GaussianPgAgent, PgAgent
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.agents.recurrent_pg_agent import RecurrentPgAgent
from parllel.torch.agents.sac_agent import SacAgent
from parllel.torch.agents.td3_agent import TD3Agent
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.distributions.ensemble import EnsembleDistribution
from parllel.torch.distributions.gaussian import Gaussian
from parllel.torch.distributions.multi_discrete import MultiDiscrete
from parllel.torch.distributions.squashed_gaussian import SquashedGaussian
from parllel.torch.models.actor_critic import CriticModel, PolicyModel
from parllel.torch.models.heads import CategoricalHead, GaussianHead
from parllel.torch.models.mlp_model import MlpEncoder, MlpModel
from parllel.torch.models.pg_model import PgModel
from parllel.torch.models.q_model import QModel
from parllel.torch.models.shared_model import SharedModel
from parllel.torch.models.tree_encoder import FlatEncoder, OneHotEncoder, TreeEncoder
from parllel.types import class_path

_AGENTS: tuple[type[Any], ...] = (PgAgent, CategoricalPgAgent, GaussianPgAgent)
# Encoders of observations that are not learned.
_WITHOUT_PARAMETERS = (FlatEncoder, OneHotEncoder, TreeEncoder)
# (observation [N, ...], noise [N, ...]) -> action, value [N], log probability [N].
Encode: TypeAlias = Callable[[Any], Tensor]
Activate: TypeAlias = Callable[[Tensor], Tensor]
Act: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
_PAIRS: dict[type[Any], tuple[type[Any], ...]] = {
    CategoricalHead: (Categorical, MultiDiscrete),
    GaussianHead: (Gaussian,),
}
_MODULES: tuple[type[Any], ...] = (
    SharedModel,
    PgModel,
    QModel,
    PolicyModel,
    CriticModel,
    *_PAIRS,
    MlpModel,
    MlpEncoder,
    *_WITHOUT_PARAMETERS,
    nn.ModuleList,
    nn.Linear,
)


class KnownGroup(NamedTuple):
    """Agents that act with one known model.

    Attributes:
        names: keys of their observations and actions, in the order in which `shared` has them; empty for a
            single agent, whose observations and actions have no keys.
        model, distribution: those of each of them.
        shared: appends the agents' ids to observations; None if there are none.
    """

    names: tuple[str, ...]
    model: PgModel
    distribution: Distribution
    shared: SharedModel | None = None


def known_groups(agent: Any, who: str, instead: str) -> list[KnownGroup]:
    """Return the known models of an agent, or of several that learn together.

    Besides single agents, these are IndependentAgents and an EnsembleAgent with a one-hot SharedModel and
    equal distributions.

    who, instead, raises: as for `known_agent`.
    """
    check = _Check(who, instead)
    if type(agent) is IndependentAgents:
        check.methods(agent)
        for name, one in agent.agents.items():
            check.single(one, f"agent {name!r}")
        each: Any = agent.agents
        return [KnownGroup((name,), one.model, one.distribution) for name, one in each.items()]
    if type(agent) is EnsembleAgent:
        return [check.ensemble(agent)]
    known: Any = known_agent(agent, who, instead)
    return [KnownGroup((), known.model, known.distribution)]


def known_agent(agent: Any, who: str, instead: str) -> PgAgent:
    """Return the agent, after checking that it computes exactly what this library's classes define.

    The agent must be a PgAgent, CategoricalPgAgent or GaussianPgAgent on the CPU. Its model must be
    a PgModel in float32 with a CategoricalHead or GaussianHead. An encoder must consist of fully
    connected layers or have no parameters.

    who, instead: the caller, and what to use instead of it, for error messages.

    Raises:
        TypeError: for other classes. Subclasses are rejected, because they may compute something else.
        ValueError: for a model on another device, with another dtype, or with hooks.
    """
    _Check(who, instead).single(agent)
    known: PgAgent = agent
    return known


def known_q_model(agent: Any, who: str, instead: str) -> QModel:
    """Return the model of a QAgent, after checks like those of `known_agent`.

    who, instead, raises: as for `known_agent`.
    """
    check = _Check(who, instead)
    check.q_agent(agent)
    model: QModel = agent.model
    return model


def known_actor_critic(agent: Any, who: str, instead: str) -> ActorCriticAgent:
    """Return a SacAgent or TD3Agent, after checks like those of `known_agent`.

    Its models must be a PolicyModel and a CriticModel whose encoders have no parameters.

    who, instead, raises: as for `known_agent`.
    """
    _Check(who, instead).actor_critic(agent)
    known: ActorCriticAgent = agent
    return known


def known_distribution(agent: Any) -> Distribution | None:
    """Return the distribution of a single agent, if `evaluate` does what this library's classes do.

    The model may be any. None for other agents and distributions, and for subclasses.
    """
    own = vars(agent).keys() & {"evaluate", "outputs", "evaluate_outputs", "_forward"}
    if own or type(agent) not in (*_AGENTS, RecurrentPgAgent):
        return None
    known = type(agent.distribution) in (Categorical, MultiDiscrete, Gaussian)
    return agent.distribution if known else None


class _Check:
    def __init__(self, who: str, instead: str) -> None:
        self._who, self._instead = who, instead

    def single(self, agent: Any, name: str = "agent") -> None:
        # First, because the checks below rely on attributes that other agents and models may lack.
        self._class(name, agent, _AGENTS)
        self.methods(agent, name)
        self._model(f"{name}.model", agent.model)
        known = _PAIRS[type(agent.model.head)]
        self._class(f"{name}.distribution", agent.distribution, known)
        self.modules(agent.model, f"{name}.model")

    def q_agent(self, agent: Any) -> None:
        self._class("agent", agent, (QAgent,))
        self.methods(agent)
        self._class("agent.model", agent.model, (QModel,))
        self._encoder("agent.model.encoder", agent.model.encoder)
        self.modules(agent.model, "agent.model")

    def actor_critic(self, agent: Any) -> None:
        self._class("agent", agent, (SacAgent, TD3Agent))
        self.methods(agent)
        if isinstance(agent, SacAgent):
            self._class("agent.distribution", agent.distribution, (SquashedGaussian,))
        for name, kind in (("policy", PolicyModel), ("critics", CriticModel)):
            model = getattr(agent, name)
            self._class(f"agent.{name}", model, (kind,))
            if model.encoder is not None:
                self._class(f"agent.{name}.encoder", model.encoder, _WITHOUT_PARAMETERS)
            self.modules(model, f"agent.{name}")

    def ensemble(self, agent: EnsembleAgent) -> KnownGroup:
        self.methods(agent)
        shared: Any = agent.model
        self._class("agent.model", shared, (SharedModel,))
        if not shared.one_hot or sorted(shared.names) != sorted(agent.names):
            raise ValueError(
                f"{self._who}: agent.model: expected a SharedModel of {list(agent.names)} with one_hot=True, "
                f"got one of {list(shared.names)} with one_hot={shared.one_hot}; {self._instead}"
            )
        self._model("agent.model.model", shared.model)
        self._class("agent.distribution", agent.distribution, (EnsembleDistribution,))
        distributions: Any = agent.distribution
        each = [distributions.distributions[name] for name in shared.names]
        for name, one in zip(shared.names, each, strict=True):
            self._class(f"distribution of {name!r}", one, _PAIRS[type(shared.model.head)])
            if choices_of(one) != choices_of(each[0]):
                raise ValueError(
                    f"{self._who}: distribution of {name!r}: expected the choices of {shared.names[0]!r}, "
                    f"{choices_of(each[0])}, got {choices_of(one)}; {self._instead}"
                )
        self.modules(shared, "agent.model")
        return KnownGroup(shared.names, shared.model, each[0], shared)

    def methods(self, agent: Any, name: str = "agent") -> None:
        """Reject an agent with methods of its own."""
        for method in (
            "step",
            "evaluate",
            "outputs",
            "evaluate_outputs",
            "action_values",
            "_forward",
            "_choose",
            "_to_device",
        ):
            if method in vars(agent):
                raise ValueError(
                    f"{self._who}: {name}.{method}: expected the method of its class; {self._instead}"
                )

    def _model(self, name: str, model: Any) -> None:
        self._class(name, model, (PgModel,))
        self._class(f"{name}.head", model.head, tuple(_PAIRS))
        self._encoder(f"{name}.encoder", model.encoder)

    def _encoder(self, name: str, encoder: Any) -> None:
        if encoder is not None:
            self._class(name, encoder, (MlpEncoder, *_WITHOUT_PARAMETERS))

    def modules(self, model: nn.Module, name: str) -> None:
        """Reject modules that do not compute what their classes define."""
        # `module.forward = ...` replaces the method of this object only, and its class still looks right.
        if (
            model._forward_hooks
            or model._forward_pre_hooks
            or model._backward_hooks
            or model._backward_pre_hooks
            or "forward" in vars(model)
        ):
            raise ValueError(
                f"{self._who}: {name}: expected a module without hooks and with its class's forward; "
                f"compiled steps would not call them; {self._instead}"
            )
        # Every module, because one that wraps a layer (dropout, say) would not be computed either.
        self._class(name, model, _MODULES)
        for key, parameter in model._parameters.items():
            if parameter is not None:
                self._parameter(f"{name}.{key}", parameter)
        # Not `named_modules`, which takes three times as long; this is done for each batch.
        for key, module in model._modules.items():
            if module is not None:
                self.modules(module, f"{name}.{key}")

    def _parameter(self, name: str, parameter: nn.Parameter) -> None:
        if not parameter.is_cpu or parameter.dtype != torch.float32:
            raise ValueError(
                f"{self._who}: {name}: expected float32 on the CPU, got {parameter.dtype} on "
                f"{parameter.device}; {self._instead}"
            )
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ValueError(
                f"{self._who}: {name}: expected a parameter without hooks, which would not be called; "
                f"{self._instead}"
            )

    def _class(self, name: str, value: object, classes: tuple[type[Any], ...]) -> None:
        # Not isinstance: overrides in a subclass would be silently ignored.
        if type(value) not in classes:
            names = [kind.__name__ for kind in classes]
            # Another package's class may have the same name.
            got = type(value).__name__ if type(value).__name__ not in names else class_path(value)
            raise TypeError(
                f"{self._who}: {name}: expected {' or '.join(names)} itself, got {got}; {self._instead}"
            )


def act_of(agent: PgAgent) -> Act:
    """Return a function that does what `agent.step` does with noise, for a `known_agent`; bit-identical.

    Calling modules and looking parameters up in them takes half the time of a step of a small network. Valid
    while the modules keep their parameters.
    """
    model: Any = agent.model
    encode, trunk = features_of(model)
    trunk_ = _IN_PLACE[trunk.activation] if trunk is not None else _tanh_
    shared = [] if trunk is None else layers_of(trunk)
    (*hidden, last), (*critic, value_layer) = layers_of(model.policy), layers_of(model.critic)
    activate_ = _IN_PLACE[model.policy.activation]
    dtype, masked = last[0].dtype, model.action_mask is not None
    linear = functional.linear
    params, sample = model.head.params, agent.distribution.sample_and_log_prob

    def act(observation: Any, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # The same operations as those of the modules.
        features = observation if encode is None else encode(observation)
        if features.dim() != 2:
            features = features.reshape(features.shape[0], -1)
        if features.dtype != dtype:
            features = features.to(dtype)
        for layer in shared:
            features = trunk_(linear(features, *layer))
        x = features
        for layer in hidden:
            x = activate_(linear(x, *layer))
        outputs = linear(x, *last)
        if masked:
            outputs = outputs.masked_fill(~model.allowed(observation), -torch.inf)
        x = features
        for layer in critic:
            x = activate_(linear(x, *layer))
        value = linear(x, *value_layer).squeeze(-1)
        action, log_prob = sample(params(outputs), noise)
        return action, value, log_prob

    return act


def action_values_of(agent: QAgent) -> Callable[[Any], Tensor]:
    """Return a function that computes the action values of a model of `known_q_model`.

    As `act_of`: bit-identical, and valid while the modules keep their parameters.
    """
    model: Any = agent.model
    encode, trunk = features_of(model)
    trunk_ = _IN_PLACE[trunk.activation] if trunk is not None else _tanh_
    shared = [] if trunk is None else layers_of(trunk)
    *hidden, last = layers_of(model.actions)
    activate_ = _IN_PLACE[model.actions.activation]
    dtype = last[0].dtype
    of_state = None if model.state_value is None else layers_of(model.state_value)
    masked = model.action_mask is not None
    linear = functional.linear

    def values_of(observation: Any) -> Tensor:
        features = observation if encode is None else encode(observation)
        if features.dim() != 2:
            features = features.reshape(features.shape[0], -1)
        if features.dtype != dtype:
            features = features.to(dtype)
        for layer in shared:
            features = trunk_(linear(features, *layer))
        x = features
        for layer in hidden:
            x = activate_(linear(x, *layer))
        values = linear(x, *last)
        if of_state is not None:
            x = features
            for layer in of_state[:-1]:
                x = activate_(linear(x, *layer))
            values = linear(x, *of_state[-1]) + values - values.mean(dim=-1, keepdim=True)
        if masked:
            values = values.masked_fill(~model.allowed(observation), -torch.inf)
        return values

    return values_of


def features_of(model: PgModel | QModel) -> tuple[Encode | None, MlpEncoder | None]:
    """Return the encoder of a known model: one without parameters, or a trunk; the other is None."""
    encoder = model.encoder
    return (None, encoder) if isinstance(encoder, MlpEncoder) else (encoder, None)


def activations_of(model: PgModel) -> tuple[str | None, ...]:
    """Return the activations of a known model's networks."""
    networks = (model.encoder, model.policy, model.critic)
    return tuple(getattr(network, "activation", None) for network in networks)


def _tanh_(x: Tensor) -> Tensor:
    # As `tanh_` of the models, for results in inference mode, which have no gradients to ask about.
    array = x.numpy()
    np.tanh(array, out=array)
    return x


_IN_PLACE: dict[str, Activate] = {"tanh": _tanh_, "relu": torch.relu_}


def choices_of(distribution: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the numbers of actions of all choices, and the first action of each; None for a Gaussian."""
    if isinstance(distribution, Categorical):
        return (distribution.n,), (distribution.start,)
    if isinstance(distribution, MultiDiscrete):
        return distribution.nvec, distribution.start
    return None


def sizes_of(network: MlpModel) -> list[int]:
    """Return the size of the input and of the outputs of each layer."""
    layers: Any = list(network.layers)
    return [layers[0].in_features, *(layer.out_features for layer in layers)]


def layers_of(network: MlpModel | MlpEncoder) -> list[tuple[Tensor, Tensor]]:
    """Return weight and bias of each layer."""
    layers: Any = network.layers
    return [(layer.weight, layer.bias) for layer in layers]
