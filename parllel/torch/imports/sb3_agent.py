"""Agents from models that Stable-Baselines3 saved, without Stable-Baselines3 and without pickle.

model.zip   data         JSON, whose pickled entries are not read
            policy.pth   parameters by name, which torch.load reads with weights_only=True
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from gymnasium import Space

from parllel.agents.agent import Agent
from parllel.algos.arguments import check_not_seeds
from parllel.torch.agents.sac_agent import SacAgent
from parllel.torch.agents.td3_agent import TD3Agent
from parllel.torch.imports.layer_reader import (
    LayerReader,
    Layers,
    Parameters,
    Trunk,
    flat_trunk,
    hidden_sizes,
    load_parameters,
    make_pg_agent,
    make_q_agent,
    n_features,
    refusal,
)
from parllel.torch.imports.nature_cnn import nature_cnn
from parllel.torch.models.actor_critic import CriticModel, PolicyModel
from parllel.torch.models.mlp_model import Activation, MlpModel

_ACTIVATIONS: dict[str, Activation] = {"Tanh": "tanh", "ReLU": "relu"}
_EXTRACTORS = [
    f"stable_baselines3.common.torch_layers.{x}" for x in ("FlattenExtractor", "NatureCNN")
]
# Maps the prefix of a features extractor's parameters to the first argument of a model.
TrunkOf: TypeAlias = Callable[[str], Trunk]


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

    Only what can be read without pickle is supported: fully connected networks with tanh or ReLU (MlpPolicy)
    for observations of a Box or Discrete space, and the same after NatureCNN (CnnPolicy) for images. These
    may have their channels last in the environment, where Stable-Baselines3 added a VecTransposeImage.

    Args:
        path: the zip file.
        observation_space, action_space: the spaces of the environment; the file has them only as pickles.
        seed: seed of the agent's noise.

    Raises:
        ValueError: for a file of another kind, a network that is not supported (names the parameter), or
            spaces that do not fit.
        FileNotFoundError: if there is no such file.
        TypeError: for Seeds instead of one seed.
    """
    check_not_seeds("sb3_agent", seed)
    path = Path(path)
    data, parameters = _read(path)
    _check_classes(path, data)
    reader = LayerReader(path, parameters, _activation_of(path, data))

    def trunk_of(prefix: str) -> Trunk:
        if reader.has(f"{prefix}.cnn."):
            return nature_cnn(reader, prefix, observation_space, data)
        return flat_trunk(path, observation_space)

    for key, make in _KINDS.items():
        if reader.has(key):
            agent = make(reader, trunk_of, action_space, seed)
            reader.check_all_used()
            return agent
    raise reader.refusal(f"its parameters {sorted(parameters)[:3]} are of no known algorithm")


def _read(path: Path) -> tuple[dict[str, Any], Parameters]:
    """Return the JSON and the parameters of a file."""
    try:
        with zipfile.ZipFile(path) as archive:
            data, content = json.loads(archive.read("data")), archive.read("policy.pth")
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: expected a model that Stable-Baselines3 saved, with `data` and `policy.pth`: {error}"
        ) from error
    return data, dict(load_parameters(path, io.BytesIO(content)))


def _check_classes(path: Path, data: Mapping[str, Any]) -> None:
    """Check that the policy is one of Stable-Baselines3's."""
    # Other classes can compute something else with parameters of the same names and shapes.
    module = str((data.get("policy_class") or {}).get("__module__"))
    if not module.startswith(("stable_baselines3.", "sb3_contrib.")):
        raise refusal(path, f"its policy is a class of {module}, not of Stable-Baselines3")
    given = (data.get("policy_kwargs") or {}).get("features_extractor_class")
    name = str(given).removeprefix("<class '").removesuffix("'>")
    if given is not None and name not in _EXTRACTORS:
        raise refusal(path, f"its features extractor is {name}, not one of {_EXTRACTORS}")


def _activation_of(path: Path, data: Mapping[str, Any]) -> Activation | None:
    """Return the activation that the model was given; None for its default."""
    if data.get("use_sde"):
        raise refusal(path, "it explores by state-dependent noise (use_sde)")
    given = (data.get("policy_kwargs") or {}).get("activation_fn")
    if given is None:
        return None
    name = (
        str(given).rstrip("'>").rpartition(".")[2]
    )  # "<class 'torch.nn.modules.activation.ReLU'>"
    if name not in _ACTIVATIONS:
        raise refusal(path, f"its activation is {name}, not one of {list(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _pg_agent(reader: LayerReader, trunk_of: TrunkOf, action_space: Space[Any], seed: int) -> Agent:
    _drop_shared_copies(reader)
    trunk = trunk_of("features_extractor")

    def network(name: str, last: str) -> Layers:
        prefix = f"mlp_extractor.{name}_net"
        # CnnPolicy has no hidden layers by default.
        hidden = reader.layers(prefix, n_features(trunk)) if reader.has(f"{prefix}.") else []
        return [*hidden, reader.layer(last)]

    policy, critic = network("policy", "action_net"), network("value", "value_net")
    return make_pg_agent(reader, trunk, policy, critic, "log_std", action_space, seed)


def _drop_shared_copies(reader: LayerReader) -> None:
    """Drop the copies of a features extractor that are stored for policy and value."""
    shared = reader.group("features_extractor.")
    for prefix in ("pi_features_extractor.", "vf_features_extractor."):
        for name, parameter in reader.group(prefix).items():
            if name in shared and parameter.equal(shared[name]):
                continue
            raise reader.refusal(
                "policy and value have separate features extractors (share_features_extractor=False)"
            )
        reader.drop(prefix)


def _q_agent(reader: LayerReader, trunk_of: TrunkOf, action_space: Space[Any], seed: int) -> Agent:
    reader.drop("q_net_target.")
    trunk = trunk_of("q_net.features_extractor")
    layers = reader.layers("q_net.q_net", n_features(trunk))
    return make_q_agent(reader, trunk, layers, action_space, seed)


def _actor_critic(
    reader: LayerReader,
    trunks: tuple[Trunk, Trunk],
    action_space: Any,
    seed: int,
    policy: Layers,
    n_outputs: int,
) -> tuple[PolicyModel, CriticModel]:
    """Return both models; n_outputs: of the policy, for each element of an action."""
    for prefix in ("actor_target.", "critic_target."):
        reader.drop(prefix)
    size, activation = int(np.prod(action_space.shape)), reader.activation("relu")
    n_inputs = n_features(trunks[1]) + size
    critics: list[Layers] = []
    while reader.has(f"critic.qf{len(critics)}."):
        critics.append(reader.layers(f"critic.qf{len(critics)}", n_inputs))
    if not critics:
        raise reader.refusal("it has no critics")
    model = PolicyModel(
        trunks[0], n_outputs * size, hidden_sizes(policy), seed, activation=activation
    )
    values = CriticModel(
        trunks[1],
        size,
        hidden_sizes(critics[0]),
        seed,
        n_critics=len(critics),
        activation=activation,
    )
    reader.fill(model.network.layers, policy)
    for network, layers in zip(values.networks, critics, strict=True):
        assert isinstance(network, MlpModel)
        reader.fill(network.layers, layers)
    return model, values


def _trunks(trunk_of: TrunkOf) -> tuple[Trunk, Trunk]:
    """Return the trunks of policy and critics, which are separate as in `sac_agent_for`."""
    return trunk_of("actor.features_extractor"), trunk_of("critic.features_extractor")


def _sac_agent(reader: LayerReader, trunk_of: TrunkOf, action_space: Any, seed: int) -> Agent:
    trunks = _trunks(trunk_of)
    hidden = reader.layers("actor.latent_pi", n_features(trunks[0]))
    mean, log_std = reader.layer("actor.mu"), reader.layer("actor.log_std")
    # One layer with both outputs.
    last = (torch.cat((mean[0], log_std[0])), torch.cat((mean[1], log_std[1])))
    policy, critics = _actor_critic(reader, trunks, action_space, seed, [*hidden, last], 2)
    return SacAgent(policy, critics, action_space, seed=seed)


def _td3_agent(reader: LayerReader, trunk_of: TrunkOf, action_space: Any, seed: int) -> Agent:
    trunks = _trunks(trunk_of)
    layers = reader.layers("actor.mu", n_features(trunks[0]))
    policy, critics = _actor_critic(reader, trunks, action_space, seed, layers, 1)
    return TD3Agent(policy, critics, action_space, exploration_noise=0.1, seed=seed)


# By the beginning of a parameter's name, in this order.
_KINDS: dict[str, Callable[[LayerReader, TrunkOf, Any, int], Agent]] = {
    "action_net.weight": _pg_agent,
    "q_net.q_net.": _q_agent,
    "actor.latent_pi.": _sac_agent,
    "actor.mu.": _td3_agent,
}
