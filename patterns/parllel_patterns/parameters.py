"""Default parameters of algorithms, whose constructors have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parllel.runs.names import suggest_fields


class _Parameters:
    """Makes a dataclass usable as a mapping."""

    # `**` needs these two methods to unpack an object.
    def keys(self) -> Iterator[str]:
        """Return the parameter names."""
        return (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@suggest_fields
@dataclass(frozen=True)
class PpoParameters(_Parameters):
    """Arguments of PPO except agent and seed, usable as a mapping: `PPO(agent, **parameters, seed=0)`.

    The defaults are those of Huang et al. 2022 ("The 37 implementation details of proximal policy
    optimization") for small networks, except that the learning rate is constant, values are not clipped
    and there is no entropy bonus.

    Attributes:
        learning_rate: of Adam
        learning_rate_anneal_steps: environment steps over which the learning rate falls to 0; None: constant
        epochs: passes over each batch
        minibatches: updates per pass
        ratio_clip: how far the likelihood ratio may be from 1
        value_clip: how far a value may move from the sampled one; None: no limit
        value_loss_coeff: weight of the value loss
        entropy_loss_coeff: weight of the entropy bonus
        clip_grad_norm: largest norm of all gradients together; None: no limit
        kl_limit: estimated divergence from the sampling policy that ends learning from a batch; None: never
    """

    learning_rate: float = 2.5e-4
    learning_rate_anneal_steps: int | None = None
    epochs: int = 4
    minibatches: int = 4
    ratio_clip: float = 0.2
    value_clip: float | None = None
    value_loss_coeff: float = 0.5
    entropy_loss_coeff: float = 0.0
    clip_grad_norm: float | None = 0.5
    kl_limit: float | None = None


@suggest_fields
@dataclass(frozen=True)
class SacParameters(_Parameters):
    """Arguments of SAC except agent and seed, usable as a mapping: `SAC(agent, **parameters, seed=0)`.

    The defaults are those of Haarnoja et al. 2018b ("Soft Actor-Critic Algorithms and Applications"), table
    1. They belong to `replay_ratio=1` and a replay of 1,000,000 steps that draws 256 transitions.

    Attributes:
        learning_rate: of Adam, for policy, critics and temperature
        tau: share by which the target critics move in each update
        target_entropy: entropy in nats that the temperature aims at; None: minus the size of an action
        initial_temperature: weight of the entropy before the first update
        learn_temperature: whether the weight of the entropy is learned
        random_steps: environment steps at the start with uniformly random actions
    """

    learning_rate: float = 3e-4
    tau: float = 0.005
    target_entropy: float | None = None
    initial_temperature: float = 1.0
    learn_temperature: bool = True
    random_steps: int = 10_000


@suggest_fields
@dataclass(frozen=True)
class Td3Parameters(_Parameters):
    """Arguments of TD3 except agent and seed, usable as a mapping: `TD3(agent, **parameters, seed=0)`.

    The defaults are those of Fujimoto et al. 2018 ("Addressing Function Approximation Error in Actor-Critic
    Methods"), with the learning rate and batch size of the authors' later code. They belong to
    `replay_ratio=1` and a replay of 1,000,000 steps that draws 256 transitions.

    Attributes:
        learning_rate: of Adam, for policy and critics
        tau: share by which the target networks move in each update of the policy
        policy_delay: updates of the critics for each update of the policy
        target_noise: standard deviation of the noise on actions of targets, for actions in [-1, 1]
        target_noise_clip: largest size of this noise
        random_steps: environment steps at the start with uniformly random actions
    """

    learning_rate: float = 3e-4
    tau: float = 0.005
    policy_delay: int = 2
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    random_steps: int = 25_000


@suggest_fields
@dataclass(frozen=True)
class DqnParameters(_Parameters):
    """Arguments of DQN except the agent, usable as a mapping: `DQN(agent, **parameters)`.

    The defaults are those of Mnih et al. 2015, with double Q-learning, and with Adam and shorter intervals as
    usual for small networks. They belong to `replay_ratio=0.25` and a replay that draws 32 transitions.

    Attributes:
        learning_rate: of Adam
        learning_rate_anneal_steps: environment steps over which the learning rate falls to 0; None: constant
        double: whether the learned network chooses the actions of targets
        target_update_interval: gradient steps between updates of the target network
        tau: share by which an update moves the target network; 1: a copy
        huber_delta: error from which on the loss is linear; None: never
        clip_grad_norm: largest norm of all gradients together; None: no limit
        initial_epsilon: probability of random actions at the start; None: the agent keeps its own
        final_epsilon: probability of random actions after `epsilon_anneal_steps`
        epsilon_anneal_steps: environment steps over which the probability changes linearly
    """

    learning_rate: float = 1e-4
    learning_rate_anneal_steps: int | None = None
    double: bool = True
    target_update_interval: int = 1000
    tau: float = 1.0
    huber_delta: float | None = 1.0
    clip_grad_norm: float | None = 10.0
    initial_epsilon: float | None = 1.0
    final_epsilon: float = 0.01
    epsilon_anneal_steps: int = 100_000


@suggest_fields
@dataclass(frozen=True)
class R2d1Parameters(DqnParameters):
    """Arguments of R2D1 except the agent, usable as a mapping: `R2D1(agent, **parameters)`.

    The defaults are those of `DqnParameters`, with value rescaling and the larger gradient norm of recurrent
    networks, as in Kapturowski et al. 2019 ("Recurrent Experience Replay in Distributed Reinforcement
    Learning").

    Attributes:
        rescale_values: whether values are learned on the scale of h, see `R2D1`
        others: see `DqnParameters`
    """

    clip_grad_norm: float | None = 40.0
    rescale_values: bool = True


PPO_DEFAULTS = PpoParameters()
SAC_DEFAULTS = SacParameters()
TD3_DEFAULTS = Td3Parameters()
DQN_DEFAULTS = DqnParameters()
R2D1_DEFAULTS = R2d1Parameters()
