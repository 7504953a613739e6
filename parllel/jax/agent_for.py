"""Agents with common default models, chosen by the spaces of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from parllel.algos.arguments import check_spaces_and_seeds
from parllel.cages.spaces import Spaces
from parllel.jax.distributions import Categorical, Gaussian
from parllel.jax.pg_agent import PgAgent, usable_device
from parllel.jax.pg_model import Activation, PgModel
from parllel.runs.names import suggest_names
from parllel.seeding import Seeds


@suggest_names()
def agent_for(
    spaces: Spaces,
    *,
    seeds: Seeds,
    hidden_sizes: Sequence[int] | None = None,
    initial_log_std: float = 0.0,
    policy_gain: float = 0.01,
    activation: Activation = "tanh",
    device: str = "cpu",
) -> PgAgent:
    """Return a policy-gradient agent with a `PgModel` and distribution that fit the spaces.

    Observations are a Box that is not an image; policy and value are separate networks. Discrete actions are
    drawn from a softmax, Box actions from a normal distribution.

    Args:
        spaces: the environments' spaces, such as `cages[0].spaces`.
        seeds: source of the seeds named "model" and "agent".
        hidden_sizes: units of the hidden layers of policy and value. Defaults to (64, 64).
        initial_log_std: initial log standard deviation of a normal distribution; 0 is a standard
            deviation of 1.
        policy_gain: scale of the initial weights of the policy's last layer. With 0, the untrained policy is
            the same in all states, so an evaluation before training does not depend on lucky weights.
        activation: "tanh" or "relu", applied after each hidden layer.
        device: kind of device on which the model runs, see `PgAgent`.

    Raises:
        TypeError: for arguments of the wrong type, and for other spaces. The message says what to do.
        ValueError: for sizes below one, an unknown activation, or a device that JAX cannot use here.
    """
    check_spaces_and_seeds("agent_for", spaces, seeds, hidden_sizes)
    distribution = distribution_for(spaces.action)
    shape = _vector_shape(spaces.observation)
    # Before a seed is taken, so that another device can be tried with the same seeds. A CPU is always there;
    # the model starts JAX on it, with as many threads as suit its size.
    if device != "cpu":
        usable_device(device, "agent_for")
    model = PgModel(
        shape,
        distribution,
        (64, 64) if hidden_sizes is None else hidden_sizes,
        seeds.integer("model"),
        initial_log_std=initial_log_std,
        policy_gain=policy_gain,
        activation=activation,
    )
    return PgAgent(model, distribution, seed=seeds.integer("agent"), device=device)


def distribution_for(space: gym.Space[Any]) -> Categorical | Gaussian:
    """Return the default action distribution of a space.

    Raises:
        TypeError: for a space without a default.
    """
    if isinstance(space, Discrete):
        return Categorical(int(space.n), start=int(space.start))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space.shape)
    raise TypeError(
        f"agent_for: expected actions of a Discrete space or a Box of floats, got {space}; give a PgAgent a "
        "Model and a Distribution of your own, or use parllel.torch.agent_for, which knows more spaces"
    )


def _vector_shape(space: gym.Space[Any]) -> tuple[int, ...]:
    image = space.dtype == np.uint8 and len(space.shape or ()) > 1
    if isinstance(space, Box) and not image:
        return tuple(space.shape)
    raise TypeError(
        f"agent_for: expected observations of a Box that are not images, got {space}; give a PgAgent a Model "
        "of your own, or use parllel.torch.agent_for, which knows more spaces"
    )
