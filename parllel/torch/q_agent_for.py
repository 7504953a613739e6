"""Q agents with common default models, chosen by the spaces of an environment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gymnasium.spaces import Discrete

from parllel.algos.arguments import check_spaces_and_seeds
from parllel.cages.spaces import Spaces
from parllel.runs.names import suggest_names
from parllel.seeding import Seeds
from parllel.torch.agent_for import image_sides, trunk_for
from parllel.torch.agents.pg_agent import usable_device
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.models.cnn_encoder import Convolutions
from parllel.torch.models.mlp_model import Activation
from parllel.torch.models.q_model import QModel


@suggest_names()
def q_agent_for(
    spaces: Spaces,
    *,
    seeds: Seeds,
    hidden_sizes: Sequence[int] | None = None,
    dueling: bool = False,
    epsilon: float | Sequence[float] = 1.0,
    activation: Activation = "relu",
    action_mask: str | None = None,
    convolutions: Convolutions | None = None,
    compute_dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> QAgent:
    """Return an epsilon-greedy agent with a model that fits the spaces.

    Observations are encoded as by `agent_for`: images (a uint8 Box with 2 to 4 dimensions) by a `CnnEncoder`,
    the parts of a Dict or Tuple separately.

    Args:
        spaces: the environments' spaces, such as `cages[0].spaces`.
        seeds: source of the seeds named "model" and "agent".
        hidden_sizes: units of the hidden layers. Defaults to (256, 256), or to no hidden layers after
            convolutions.
        dueling, activation: see `QModel`.
        epsilon: see `QAgent`.
        action_mask: name of the part of a Dict observation that is 0 for each forbidden action, with one
            number for each action. The agent never takes these actions.
        convolutions, compute_dtype: see `agent_for`.
        device: device on which the model runs.

    Raises:
        TypeError: for arguments of the wrong type, actions that are not Discrete, and observations without
            a default model.
        ValueError: for images that do not fit the convolutions, or a device that PyTorch cannot use here.
    """
    check_spaces_and_seeds("q_agent_for", spaces, seeds, hidden_sizes)
    device = usable_device(device, "q_agent_for")
    if not isinstance(spaces.action, Discrete):
        raise TypeError(
            f"q_agent_for: expected actions of a Discrete space, got {spaces.action}. SAC and TD3 learn "
            "continuous actions, PPO all kinds"
        )
    # In 2015 a layer of 512 units followed the convolutions, which is the last of a CnnEncoder.
    image = bool(image_sides(spaces.observation))
    sizes = (() if image else (256, 256)) if hidden_sizes is None else tuple(hidden_sizes)
    generator = torch.Generator().manual_seed(seeds.integer("model"))
    n_actions = int(spaces.action.n)
    # One generator for encoder and networks, in this order.
    model = QModel(
        trunk_for(
            spaces.observation,
            convolutions=convolutions,
            compute_dtype=compute_dtype,
            generator=generator,
        ),
        n_actions,
        sizes,
        generator,
        dueling=dueling,
        activation=activation,
        action_mask=action_mask,
    )
    return QAgent(
        model,
        n_actions,
        epsilon=epsilon,
        start=int(spaces.action.start),
        seed=seeds.integer("agent"),
        device=device,
    )
