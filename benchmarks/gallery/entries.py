"""What the gallery trains, cheapest first, and its two sides."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.end_to_end.sides import Side
from parllel_patterns import TunedConfig, tuned

OURS = Side("ours", "parllel", "ours", None, ())
SB3 = Side("sb3", "Stable-Baselines3", "sb3", "peers", ())
SIDES = (OURS, SB3)


@dataclass(frozen=True)
class Entry:
    """Trainings of both sides with the same settings.

    Attributes:
        name: of the settings, for `parllel_patterns.tuned`.
        config: the settings.
        n_seeds: trainings of each side. The permutation test needs four for an interval of 95 %.
        n_eval_episodes: episodes of the final policy, each with a fixed seed.
    """

    name: str
    config: TunedConfig
    n_seeds: int = 4
    n_eval_episodes: int = 50


def _entry(name: str, **numbers: int) -> Entry:
    return Entry(name, tuned(name), **numbers)


ENTRIES = (
    _entry("cartpole-ppo", n_seeds=5),
    _entry("pendulum-sac"),
    _entry("acrobot-ppo"),
    _entry("cartpole-dqn"),
    _entry("doorkey-ppo"),
    _entry("double-pendulum-ppo", n_eval_episodes=20),
    _entry("mountaincar-dqn"),
    _entry("hopper-ppo", n_eval_episodes=20),
)
