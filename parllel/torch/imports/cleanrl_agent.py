"""Agents from models that CleanRL saved, read without pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gymnasium import Space
from torch import Tensor

from parllel.agents.agent import Agent
from parllel.algos.arguments import check_not_seeds
from parllel.torch.imports.layer_reader import (
    LayerReader,
    flat_trunk,
    load_parameters,
    make_pg_agent,
    make_q_agent,
    n_features,
    refusal,
)


def cleanrl_agent(
    path: str | os.PathLike[str],
    observation_space: Space[Any],
    action_space: Space[Any],
    *,
    seed: int,
) -> Agent:
    """Return an agent with the parameters of a model that CleanRL saved, `NAME.cleanrl_model`.

    The networks of `ppo.py` and `ppo_continuous_action.py` become a `PgAgent`, that of `dqn.py` a `QAgent`.
    In eval mode it takes the most likely action, or that of the largest value. The wrappers of CleanRL's
    environments, such as NormalizeObservation, are not in the file.

    Args:
        path: the file, in which `torch.save` wrote the parameters of one module.
        observation_space, action_space: the spaces of the environment.
        seed: seed of the agent's noise.

    Raises:
        ValueError: for a file that needs pickle, a network that is not supported (names the parameter), or
            spaces that do not fit.
        FileNotFoundError: if there is no such file.
        TypeError: for Seeds instead of one seed.
    """
    check_not_seeds("cleanrl_agent", seed)
    path = Path(path)
    with path.open("rb") as file:
        parameters = load_parameters(path, file)
    if not isinstance(parameters, dict) or not all(
        isinstance(x, Tensor) for x in parameters.values()
    ):
        raise refusal(
            path,
            f"expected the parameters of one module, got a {type(parameters).__name__} of other things",
        )
    reader = LayerReader(path, parameters)
    agent = _agent(reader, observation_space, action_space, seed)
    reader.check_all_used()
    return agent


def _agent(
    reader: LayerReader, observation_space: Space[Any], action_space: Space[Any], seed: int
) -> Agent:
    trunk = flat_trunk(reader.path, observation_space)
    n = n_features(trunk)
    if reader.has("network."):
        return make_q_agent(reader, trunk, reader.layers("network", n), action_space, seed)
    policy = "actor_mean" if reader.has("actor_mean.") else "actor"
    policy_layers, critic = reader.layers(policy, n), reader.layers("critic", n)
    return make_pg_agent(reader, trunk, policy_layers, critic, "actor_logstd", action_space, seed)
