"""What is trained: the settings of all sides, the sides, and the speeds to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.end_to_end.settings import Settings
from benchmarks.end_to_end.sides import (
    CLEANRL_STYLE,
    COMPILED,
    IN_TURN,
    IN_TURN_NORMALIZED,
    OVERLAPPED,
    OVERLAPPED_NORMALIZED,
    SB3,
    Side,
)


@dataclass(frozen=True)
class Goal:
    """How many times as fast as each peer one of our sides shall be; None: no aim."""

    target: float
    aim: float | None = None


@dataclass(frozen=True)
class Scene:
    """One training.

    Attributes:
        name: for the command line and the results.
        settings: of all sides.
        sides: ours first.
        goals: by the name of our side.
    """

    name: str
    settings: Settings
    sides: tuple[Side, ...]
    goals: Mapping[str, Goal]


SCENES = (
    Scene(
        "cartpole",
        Settings(),
        (IN_TURN, OVERLAPPED, COMPILED, SB3, CLEANRL_STYLE),
        {
            IN_TURN.name: Goal(4.0, 5.0),
            OVERLAPPED.name: Goal(6.0),
            COMPILED.name: Goal(7.0),
        },
    ),
    # The hyperparameters of examples/half_cheetah, with as many environments as CartPole.
    Scene(
        "halfcheetah",
        Settings(
            env="HalfCheetah-v5",
            n_steps=71_680,
            learning_rate=3e-4,
            discount=0.98,
            gae_lambda=0.92,
            epochs=10,
            minibatches=16,
            entropy_loss_coeff=0.0,
            normalize=True,
            initial_log_std=-1.0,
        ),
        (IN_TURN_NORMALIZED, OVERLAPPED_NORMALIZED, SB3, CLEANRL_STYLE),
        {IN_TURN.name: Goal(2.5), OVERLAPPED.name: Goal(2.5)},
    ),
)
