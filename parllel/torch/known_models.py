"""Recognition of agents whose networks can be computed without calling their modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from parllel.torch.agents.pg_agent import CategoricalPgAgent, GaussianPgAgent, PgAgent
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.gaussian import Gaussian
from parllel.torch.distributions.multi_discrete import MultiDiscrete
from parllel.torch.models.heads import CategoricalHead, GaussianHead
from parllel.torch.models.mlp_model import MlpEncoder, MlpModel
from parllel.torch.models.pg_model import PgModel
from parllel.torch.models.tree_encoder import FlatEncoder, OneHotEncoder, TreeEncoder

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
    PgModel,
    *_PAIRS,
    MlpModel,
    MlpEncoder,
    *_WITHOUT_PARAMETERS,
    nn.ModuleList,
    nn.Linear,
)


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
    check = _Check(who, instead)
    # First, because the checks below rely on attributes that other agents and models may lack.
    check.classes(agent)
    check.modules(agent.model)
    known: PgAgent = agent
    return known


class _Check:
    def __init__(self, who: str, instead: str) -> None:
        self._who, self._instead = who, instead

    def classes(self, agent: Any) -> None:
        self._class("agent", agent, (PgAgent, CategoricalPgAgent, GaussianPgAgent))
        for name in ("step", "evaluate", "_forward", "_choose", "_to_device"):
            if name in vars(agent):
                raise ValueError(
                    f"{self._who}: agent.{name}: expected the method of its class; {self._instead}"
                )
        model: Any = agent.model
        self._class("agent.model", model, (PgModel,))
        self._class("agent.model.head", model.head, tuple(_PAIRS))
        self._class("agent.distribution", agent.distribution, _PAIRS[type(model.head)])
        if model.encoder is not None:
            self._class("agent.model.encoder", model.encoder, (MlpEncoder, *_WITHOUT_PARAMETERS))

    def modules(self, model: nn.Module) -> None:
        """Reject modules that do not compute what their classes define."""
        for name, module in model.named_modules(prefix="agent.model"):
            hooks = (
                module._forward_hooks,
                module._forward_pre_hooks,
                module._backward_hooks,
                module._backward_pre_hooks,
            )
            # `module.forward = ...` replaces the method of this object only, and its class still looks right.
            if any(hooks) or "forward" in vars(module):
                raise ValueError(
                    f"{self._who}: {name}: expected a module without hooks and with its class's forward; "
                    f"compiled steps would not call them; {self._instead}"
                )
            # Every module, because one that wraps a layer (dropout, say) would not be computed either.
            self._class(name, module, _MODULES)
        for name, parameter in model.named_parameters(prefix="agent.model"):
            if parameter.device.type != "cpu" or parameter.dtype != torch.float32:
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
            names = " or ".join(kind.__name__ for kind in classes)
            raise TypeError(
                f"{self._who}: {name}: expected {names} itself, got {type(value).__name__}; {self._instead}"
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
    dtype = last[0].dtype
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
        x = features
        for layer in critic:
            x = activate_(linear(x, *layer))
        value = linear(x, *value_layer).squeeze(-1)
        action, log_prob = sample(params(outputs), noise)
        return action, value, log_prob

    return act


def features_of(model: PgModel) -> tuple[Encode | None, MlpEncoder | None]:
    """Return the encoder of a known model: one without parameters, or a trunk; the other is None."""
    encoder = model.encoder
    return (None, encoder) if isinstance(encoder, MlpEncoder) else (encoder, None)


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
