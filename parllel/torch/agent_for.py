"""Agents with common default models, chosen by the spaces of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from gymnasium.spaces import MultiDiscrete as MultiDiscreteSpace
from torch import nn

from parllel.algos.arguments import check_spaces_and_seeds
from parllel.buffers.paths import parts_of
from parllel.cages.spaces import Spaces
from parllel.runs.names import suggest_names
from parllel.seeding import Seeds
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.agents.pg_agent import PgAgent, usable_device
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.distributions.gaussian import Gaussian
from parllel.torch.distributions.multi_discrete import MultiDiscrete
from parllel.torch.models.cnn_encoder import (
    CONVOLUTIONS_2015,
    CONVOLUTIONS_SMALL,
    CnnEncoder,
    Convolutions,
    has_channels_last,
)
from parllel.torch.models.heads import CategoricalHead, GaussianHead, Head
from parllel.torch.models.mlp_model import Activation
from parllel.torch.models.pg_model import PgModel
from parllel.torch.models.shared_model import SharedModel
from parllel.torch.models.tree_encoder import FlatEncoder, OneHotEncoder, TreeEncoder

# Without padding, 36 pixels become 8, 3 and 1 after kernels of 8, 4 and 3 with strides of 4, 2 and 1.
_SIDES_OF_2015 = 36  # pixels that the kernels of 2015 need
_LEAST_SIDES = 5


@suggest_names()
def agent_for(
    spaces: Spaces,
    *,
    seeds: Seeds,
    hidden_sizes: Sequence[int] | None = None,
    initial_log_std: float = 0.0,
    state_dependent_std: bool = False,
    policy_gain: float = 0.01,
    activation: Activation = "tanh",
    action_mask: str | None = None,
    convolutions: Convolutions | None = None,
    compute_dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> PgAgent:
    """Return a policy-gradient agent with a model and distribution that fit the spaces.

    Discrete, MultiDiscrete and MultiBinary actions are drawn from one softmax per choice, Box actions from a
    normal distribution.

    Box observations go into two separate networks, for policy and value. For images (a uint8 Box with 2 to 4
    dimensions) policy and value share a `CnnEncoder`. Discrete and MultiDiscrete observations are one-hot
    encoded. The parts of a Dict or Tuple are encoded separately and their features concatenated.

    Args:
        spaces: the environments' spaces, such as `cages[0].spaces`.
        seeds: source of the seeds named "model" and "agent".
        hidden_sizes: units of the hidden layers of policy and value. Defaults to (64, 64), or to no
            hidden layers after convolutions.
        initial_log_std: initial log standard deviation of a normal distribution; 0 is a standard
            deviation of 1.
        state_dependent_std: whether the standard deviation is an output of the network, see `GaussianHead`.
        policy_gain: scale of the initial weights of the policy's last layer. With 0, the untrained policy is
            the same in all states, so an evaluation before training does not depend on lucky weights.
        activation: "tanh" or "relu", applied after each hidden layer of policy and value.
        action_mask: name of the part of a Dict observation that is 0 for each forbidden action, with one
            number for each action; for MultiDiscrete, sum(nvec) numbers. The policy never chooses these
            actions. The mask is also an input of policy and value.
        convolutions: convolutions for images. Defaults to `CONVOLUTIONS_2015` for at least 36 x 36
            pixels, else to `CONVOLUTIONS_SMALL`.
        compute_dtype: dtype of the arithmetic in the convolutions, see `CnnEncoder`.
        device: device on which the model runs.

    Raises:
        TypeError: for arguments of the wrong type, and for spaces without a default model. The
            message says what to do. Use `agents_for` for the Dict action space of several agents.
        ValueError: for images that do not fit the convolutions, or a device that PyTorch cannot use
            here.
    """
    check_spaces_and_seeds("agent_for", spaces, seeds, hidden_sizes)
    device = usable_device(device, "agent_for")
    distribution = distribution_for(spaces.action)
    model = _model(
        spaces.observation,
        distribution,
        seeds.integer("model"),
        hidden_sizes=hidden_sizes,
        initial_log_std=initial_log_std,
        state_dependent_std=state_dependent_std,
        policy_gain=policy_gain,
        activation=activation,
        action_mask=action_mask,
        convolutions=convolutions,
        compute_dtype=compute_dtype,
    )
    return PgAgent(model, distribution, seed=seeds.integer("agent"), device=device)


@suggest_names(agent_for)
def agents_for(
    spaces: Spaces,
    *,
    seeds: Seeds,
    sharing: Literal["independent", "shared"],
    device: torch.device | str = "cpu",
    **model: Any,
) -> IndependentAgents | EnsembleAgent:
    """Return one agent per key of a Dict action space, combined into a single Agent.

    Args:
        spaces: the environments' spaces, Dicts keyed by agent; see
            `parllel.envs.ParallelEnvAdapter`.
        seeds: source of the seeds of models and agents, which are looked up by name.
        sharing: "independent" gives each agent its own model; "shared" uses one model for all, which also
            receives the agent's index.
        device: device on which the models run.
        model: further arguments of `agent_for`.

    Raises:
        TypeError, ValueError: for the reasons given in `agent_for`, and for agents with a shared
            model whose spaces differ or whose observations are not vectors.
    """
    if not isinstance(spaces.action, Dict) or not isinstance(spaces.observation, Dict):
        raise TypeError(
            f"agents_for: expected Dict spaces by agent, got {spaces.observation} and {spaces.action}. "
            "Use agent_for for a single agent"
        )
    device = usable_device(device, "agents_for")
    names = tuple(spaces.action)
    distributions = {name: distribution_for(spaces.action[name]) for name in names}
    if sharing == "shared":
        seen = _space_with_id([spaces.observation[name] for name in names])
        if any(spaces.action[name] != spaces.action[names[0]] for name in names):
            raise ValueError(f"agents_for: shared: expected equal actions, got {spaces.action}")
        one = _model(seen, distributions[names[0]], seeds.integer("model"), **model)
        # Besides the observation, the model has one input per agent; see `_space_with_id`.
        together = SharedModel(one, names, one_hot=True)
        return EnsembleAgent(together, distributions, seed=seeds.integer("agent"), device=device)
    agents = {}
    for name in names:
        # Seeds by name, so that an agent's weights do not change when other agents are added.
        own, seed = spaces.observation[name], seeds.integer(f"model of {name}")
        agents[name] = PgAgent(
            _model(own, distributions[name], seed, **model),
            distributions[name],
            seed=seeds.integer(name),
            device=device,
        )
    return IndependentAgents(agents)


def distribution_for(space: gym.Space[Any]) -> Distribution:
    """Return the default action distribution of a space.

    Raises:
        TypeError: for a space without a default.
    """
    if isinstance(space, Discrete):
        return Categorical(int(space.n), start=int(space.start))
    if isinstance(space, MultiDiscreteSpace) and space.nvec.ndim == 1:
        return MultiDiscrete(space.nvec.tolist(), start=space.start.tolist())
    if isinstance(space, MultiBinary) and len(space.shape) == 1:
        # A softmax over two logits is the sigmoid of their difference: a Bernoulli distribution per bit.
        return MultiDiscrete([2] * space.shape[0])
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space.shape)
    hint = "agents_for takes those of several agents" if isinstance(space, Dict) else ""
    raise TypeError(
        "agent_for: expected actions of a Discrete space, a MultiDiscrete or MultiBinary one of one "
        "dimension, or a Box of floats, "
        f"got {space}; {hint or 'give a PgAgent a model and a Distribution of your own'}"
    )


def encoder_for(
    space: gym.Space[Any],
    *,
    convolutions: Convolutions | None = None,
    compute_dtype: torch.dtype | None = None,
    generator: torch.Generator,
) -> nn.Module:
    """Return a module that maps observations of a space to features, for custom models. See `agent_for`.

    Raises:
        TypeError: for a space whose elements have no fixed size.
    """
    settings: Any = {
        "convolutions": convolutions,
        "compute_dtype": compute_dtype,
        "generator": generator,
    }
    if isinstance(space, (Dict, Tuple)):
        parts = parts_of(space.spaces) or {}
        return TreeEncoder({name: encoder_for(part, **settings) for name, part in parts.items()})
    if isinstance(space, Discrete):
        return OneHotEncoder([int(space.n)], [int(space.start)])
    if isinstance(space, MultiDiscreteSpace):
        return OneHotEncoder(space.nvec.ravel().tolist(), space.start.ravel().tolist())
    if isinstance(space, (Box, MultiBinary)):
        sides = image_sides(space)
        if not sides:
            return FlatEncoder(space.shape)
        # The smaller side decides, because kernels are square.
        usual = CONVOLUTIONS_2015 if min(sides) >= _SIDES_OF_2015 else CONVOLUTIONS_SMALL
        return CnnEncoder(
            space.shape,
            convolutions or usual,
            compute_dtype=compute_dtype,
            generator=generator,
        )
    raise TypeError(
        f"agent_for: expected observations of a fixed size, got {space}; wrap the environment"
    )


def trunk_for(
    space: gym.Space[Any], *, generator: torch.Generator, **images: Any
) -> tuple[int, ...] | nn.Module:
    """Return an encoder of observations, or the shape of vectors, which need none."""
    # Fully connected networks flatten and cast their input.
    if isinstance(space, Box) and not image_sides(space):
        return space.shape or ()
    return encoder_for(space, **images, generator=generator)


def _model(
    space: gym.Space[Any],
    distribution: Distribution,
    seed: int,
    *,
    hidden_sizes: Sequence[int] | None = None,
    initial_log_std: float = 0.0,
    state_dependent_std: bool = False,
    policy_gain: float = 0.01,
    activation: Activation = "tanh",
    action_mask: str | None = None,
    **images: Any,
) -> nn.Module:
    """Return a model for observations of `space` and parameters of `distribution`."""
    # (64, 64) as in Schulman et al. 2017 (section 6.1), not shared by policy and value. The last layer of the
    # convolutions is wide enough for linear heads, as in Mnih et al. 2015.
    image = bool(image_sides(space))
    sizes = (() if image else (64, 64)) if hidden_sizes is None else tuple(hidden_sizes)
    generator = torch.Generator().manual_seed(seed)
    trunk = trunk_for(space, **images, generator=generator)
    head: Head
    if isinstance(distribution, Gaussian):
        head = GaussianHead(
            distribution.action_shape, initial_log_std, state_dependent=state_dependent_std
        )
    else:
        assert isinstance(distribution, (Categorical, MultiDiscrete))
        n = distribution.n if isinstance(distribution, Categorical) else sum(distribution.nvec)
        head = CategoricalHead(n)
    # One generator for encoder and networks, in this order.
    return PgModel(
        trunk,
        head,
        sizes,
        seed=generator,
        policy_gain=policy_gain,
        activation=activation,
        action_mask=action_mask,
    )


def image_sides(space: gym.Space[Any]) -> tuple[int, ...]:
    """Return the height and width of the images of a space; () if it holds no images."""
    if not isinstance(space, Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3, 4):
        return ()
    image = space.shape[1:] if len(space.shape) == 4 else space.shape
    if len(image) == 3:
        image = image[:2] if has_channels_last(image) else image[1:]
    return image if min(image) >= _LEAST_SIDES else ()


def _space_with_id(observations: Sequence[gym.Space[Any]]) -> Box:
    """Return the space of an observation with its agent's one-hot index appended."""
    first = observations[0]
    if any(space.shape != first.shape for space in observations):
        raise ValueError(f"agents_for: shared: expected equal observations, got {observations}")
    if not isinstance(first, Box) or image_sides(first):
        raise ValueError(
            f"agents_for: shared: expected observations that are vectors, got {first}; give an "
            "EnsembleAgent a SharedModel of your own"
        )
    # Bounds do not matter: only the shape is used, for the input size of the model.
    size = int(np.prod(first.shape)) + len(observations)
    return Box(-np.inf, np.inf, (size,))
