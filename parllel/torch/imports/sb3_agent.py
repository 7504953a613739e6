"""Agents from models that Stable-Baselines3 saved, without Stable-Baselines3 and without pickle.

model.zip   data         JSON, whose pickled entries are not read
            policy.pth   parameters by name, which torch.load reads with weights_only=True
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from parllel.agents.agent import Agent
from parllel.torch.agent_for import distribution_for, encoder_for
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.agents.sac_agent import SacAgent
from parllel.torch.agents.td3_agent import TD3Agent
from parllel.torch.models.actor_critic import CriticModel, PolicyModel
from parllel.torch.models.heads import CategoricalHead, GaussianHead
from parllel.torch.models.mlp_model import MlpModel
from parllel.torch.models.pg_model import PgModel
from parllel.torch.models.q_model import QModel

Parameters: TypeAlias = dict[str, Tensor]
_ACTIVATIONS: dict[str, Any] = {"Tanh": "tanh", "ReLU": "relu"}
_LAYER = re.compile(r"(\d+)\.weight")


def sb3_agent(
    path: str | os.PathLike[str],
    observation_space: Space[Any],
    action_space: Space[Any],
    *,
    seed: int,
) -> Agent:
    """Return an agent with the parameters of a model that Stable-Baselines3 saved with `model.save`.

    PPO and A2C become a `PgAgent`, SAC a `SacAgent`, TD3 and DDPG a `TD3Agent`, DQN a `QAgent`. In eval mode
    it acts as `model.predict(..., deterministic=True)` does, and it can be trained further. Statistics of
    VecNormalize are in another file, a pickle, so the observations must be normalised in the environment.

    Only what can be read without pickle is supported: fully connected networks (MlpPolicy) with tanh or ReLU,
    for observations of a Box or Discrete space.

    Args:
        path: the zip file.
        observation_space, action_space: the spaces of the environment; the file has them only as pickles.
        seed: seed of the agent's noise.

    Raises:
        ValueError: for a file of another kind, a network that is not supported (names the parameter), or
            spaces that do not fit.
        FileNotFoundError: if there is no such file.
    """
    path = Path(path)
    data, parameters = _read(path)
    reader = _Reader(path, data, parameters, observation_space)
    for key, make in _KINDS.items():
        if reader.has(key):
            agent = make(reader, action_space, seed)
            reader.check_all_used()
            return agent
    raise reader.refusal(f"its parameters {sorted(parameters)[:3]} are of no known algorithm")


def _read(path: Path) -> tuple[dict[str, Any], Parameters]:
    """Return the JSON and the parameters of a file."""
    try:
        with zipfile.ZipFile(path) as archive:
            data, content = archive.read("data"), archive.read("policy.pth")
        parameters = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return json.loads(data), dict(parameters)
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: expected a model that Stable-Baselines3 saved, with `data` and `policy.pth`: {error}"
        ) from error
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path}: policy.pth holds more than parameters, which only pickle reads: it would execute code "
            "of the file"
        ) from error


class _Reader:
    """Takes parameters from a file, layer by layer."""

    def __init__(
        self, path: Path, data: Mapping[str, Any], parameters: Parameters, space: Space[Any]
    ) -> None:
        self.path, self._left = path, dict(parameters)
        if data.get("use_sde"):
            raise self.refusal("it explores by state-dependent noise (use_sde)")
        settings = data.get("policy_kwargs") or {}
        activation = settings.get("activation_fn")
        self._activation: str | None = None
        if activation is not None:  # "<class 'torch.nn.modules.activation.ReLU'>"
            name = str(activation).rstrip("'>").rpartition(".")[2]
            self._activation = _ACTIVATIONS.get(name)
            if self._activation is None:
                raise self.refusal(f"its activation is {name}, not one of {list(_ACTIVATIONS)}")
        self.trunk: Any
        if isinstance(space, spaces.Discrete) and space.start == 0:
            self.trunk = encoder_for(space, generator=torch.Generator())
            self.n_inputs = int(space.n)
        elif isinstance(space, spaces.Box) and not (
            space.dtype == np.uint8 and len(space.shape) == 3
        ):
            self.trunk, self.n_inputs = space.shape, int(np.prod(space.shape))
        else:
            raise self.refusal(
                f"observations of {space} are not supported: expected a Box, not of images, or a Discrete "
                "space that starts at 0"
            )

    def refusal(self, why: str) -> ValueError:
        """Return the error for a file that is not supported."""
        return ValueError(f"{self.path}: cannot become an agent of parllel: {why}")

    def activation(self, default: str) -> Any:
        """Return the activation of hidden layers."""
        return self._activation or default

    def layers(self, prefix: str, n_inputs: int) -> list[tuple[Tensor, Tensor]]:
        """Take the layers `prefix.0`, `prefix.2`, ..., as weights and biases."""
        found = {
            int(match[1]): name.removesuffix(".weight")
            for name in self._left
            if name.startswith(f"{prefix}.")
            and (match := _LAYER.fullmatch(name.removeprefix(f"{prefix}.")))
        }
        if not found:
            raise self.refusal(f"it has no layers {prefix}")
        layers = [self.layer(found[i]) for i in sorted(found)]
        given = layers[0][0].shape[1]
        if given != n_inputs:
            raise ValueError(
                f"{self.path}: {prefix}: expected {n_inputs} inputs for the given spaces, got {given}"
            )
        return layers

    def layer(self, name: str) -> tuple[Tensor, Tensor]:
        """Take the weight and bias of one fully connected layer."""
        weight, bias = self.take(f"{name}.weight"), self.take(f"{name}.bias")
        if weight.dim() != 2:
            raise self.refusal(f"layer {name} is not fully connected")
        return weight, bias

    def has(self, prefix: str) -> bool:
        """Return whether a parameter that begins with `prefix` is left."""
        return any(name.startswith(prefix) for name in self._left)

    def take(self, name: str) -> Tensor:
        """Take a parameter."""
        if name not in self._left:
            raise self.refusal(f"it has no parameter {name}")
        return self._left.pop(name)

    def drop(self, prefix: str) -> None:
        """Leave out what an agent has no use for, such as target networks."""
        self._left = {name: x for name, x in self._left.items() if not name.startswith(prefix)}

    def check_all_used(self) -> None:
        """Raise ValueError if parameters are left over."""
        if self._left:
            raise self.refusal(
                f"parameter {min(self._left)} has no place in a fully connected network"
            )

    def fill(self, network: MlpModel, layers: list[tuple[Tensor, Tensor]]) -> None:
        """Copy layers into a network."""
        for linear, (weight, bias) in zip(network.layers, layers, strict=True):
            assert isinstance(linear, nn.Linear)
            if linear.weight.shape != weight.shape:
                raise ValueError(
                    f"{self.path}: expected layers {tuple(linear.weight.shape)} for the given spaces, got "
                    f"{tuple(weight.shape)}"
                )
            with torch.no_grad():
                linear.weight.copy_(weight)
                linear.bias.copy_(bias)


def _sizes(layers: list[tuple[Tensor, Tensor]]) -> list[int]:
    """Return the sizes of the hidden layers."""
    return [len(bias) for _, bias in layers[:-1]]


def _pg_agent(reader: _Reader, action_space: Space[Any], seed: int) -> Agent:
    policy, critic = (
        [*reader.layers(f"mlp_extractor.{name}_net", reader.n_inputs), reader.layer(f"{last}_net")]
        for name, last in (("policy", "action"), ("value", "value"))
    )
    if not isinstance(action_space, (spaces.Discrete, spaces.MultiDiscrete, spaces.Box)):
        raise reader.refusal(f"actions of {action_space} are not supported")
    if np.any(getattr(action_space, "start", 0)):
        raise reader.refusal(f"actions of {action_space} do not start at 0")
    distribution = distribution_for(action_space)
    if _sizes(policy) != _sizes(critic):
        raise reader.refusal(
            f"policy and value have hidden layers of different sizes, {_sizes(policy)} and {_sizes(critic)}"
        )
    head: Any
    if isinstance(action_space, spaces.Box):
        head = GaussianHead(action_space.shape, 0.0)
    else:
        head = CategoricalHead(
            int(
                action_space.n
                if isinstance(action_space, spaces.Discrete)
                else action_space.nvec.sum()
            )
        )
    model = PgModel(reader.trunk, head, _sizes(policy), seed, activation=reader.activation("tanh"))
    if isinstance(action_space, spaces.Box):
        with torch.no_grad():
            head.log_std.copy_(reader.take("log_std").reshape(action_space.shape))
    reader.fill(model.policy, policy)
    reader.fill(model.critic, critic)
    return PgAgent(model, distribution, seed=seed)


def _q_agent(reader: _Reader, action_space: Space[Any], seed: int) -> Agent:
    reader.drop("q_net_target.")
    layers = reader.layers("q_net.q_net", reader.n_inputs)
    if not isinstance(action_space, spaces.Discrete) or action_space.start != 0:
        raise reader.refusal(f"actions of {action_space}: expected a Discrete space from 0")
    n_actions = int(action_space.n)
    model = QModel(
        reader.trunk, n_actions, _sizes(layers), seed, activation=reader.activation("relu")
    )
    reader.fill(model.actions, layers)
    return QAgent(model, n_actions, seed=seed)


def _actor_critic(
    reader: _Reader,
    action_space: Any,
    seed: int,
    policy: list[tuple[Tensor, Tensor]],
    n_outputs: int,
) -> tuple[PolicyModel, CriticModel]:
    """Return both models; n_outputs: of the policy, for each element of an action."""
    for prefix in ("actor_target.", "critic_target."):
        reader.drop(prefix)
    size, activation = int(np.prod(action_space.shape)), reader.activation("relu")
    critics: list[list[tuple[Tensor, Tensor]]] = []
    while reader.has(f"critic.qf{len(critics)}."):
        critics.append(reader.layers(f"critic.qf{len(critics)}", reader.n_inputs + size))
    if not critics:
        raise reader.refusal("it has no critics")
    model = PolicyModel(reader.trunk, n_outputs * size, _sizes(policy), seed, activation=activation)
    values = CriticModel(
        reader.trunk,
        size,
        _sizes(critics[0]),
        seed,
        n_critics=len(critics),
        activation=activation,
    )
    reader.fill(model.network, policy)
    for network, layers in zip(values.networks, critics, strict=True):
        assert isinstance(network, MlpModel)
        reader.fill(network, layers)
    return model, values


def _sac_agent(reader: _Reader, action_space: Any, seed: int) -> Agent:
    hidden = reader.layers("actor.latent_pi", reader.n_inputs)
    mean, log_std = reader.layer("actor.mu"), reader.layer("actor.log_std")
    # One layer with both outputs.
    last = (torch.cat((mean[0], log_std[0])), torch.cat((mean[1], log_std[1])))
    policy, critics = _actor_critic(reader, action_space, seed, [*hidden, last], 2)
    return SacAgent(policy, critics, action_space, seed=seed)


def _td3_agent(reader: _Reader, action_space: Any, seed: int) -> Agent:
    layers = reader.layers("actor.mu", reader.n_inputs)
    policy, critics = _actor_critic(reader, action_space, seed, layers, 1)
    return TD3Agent(policy, critics, action_space, exploration_noise=0.1, seed=seed)


# By the beginning of a parameter's name, in this order.
_KINDS: dict[str, Callable[[_Reader, Any, int], Agent]] = {
    "mlp_extractor.": _pg_agent,
    "q_net.q_net.": _q_agent,
    "actor.latent_pi.": _sac_agent,
    "actor.mu.": _td3_agent,
}
