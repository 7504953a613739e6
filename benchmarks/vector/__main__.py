"""Measure vector environments: print tables, write JSON, and the figures in docs/vector.md.

    python -m benchmarks.vector [--quick] [--rounds N] [--only SCENE ...] [--output FILE]

A full run takes five minutes. A quick run only shows that everything works; its figures are meaningless.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace

import torch

from benchmarks.command import Command, wants
from benchmarks.harness.results import Report
from benchmarks.harness.turns import Effort, in_turn, opened
from benchmarks.vector.report import Rates, answers, markdown
from benchmarks.vector.sides import SCENES, TRAINED, sides_of, trainings_of


@dataclass(frozen=True)
class VectorEffort(Effort):
    """How long to measure.

    Attributes:
        trainings: turns of each training.
        n_steps: of each environment in a batch of a training.
    """

    trainings: int
    n_steps: int


FULL = VectorEffort(rounds=13, turn_s=0.4, trainings=7, n_steps=64)
QUICK = VectorEffort(rounds=2, turn_s=0.01, trainings=1, n_steps=4)


def measure(effort: VectorEffort, options: argparse.Namespace) -> Report:
    """Return what the rounds came to."""
    # Small networks: more threads take longer, and time from the workers.
    torch.set_num_threads(1)
    rates: dict[str, Rates] = {}
    trainings: dict[str, Rates] = {}
    for scene in SCENES:
        if not wants(options, scene):
            continue
        print(f"rows of {SCENES[scene]}", flush=True)
        with opened(sides_of(scene)) as works:
            rates[scene] = _rates(in_turn(effort, works, time.perf_counter))
        if scene in TRAINED:
            print(f"PPO on {SCENES[scene]}", flush=True)
            once = replace(effort, rounds=effort.trainings, turn_s=0.0)  # a batch in each turn
            with opened(trainings_of(scene, effort.n_steps)) as works:
                trainings[scene] = _rates(in_turn(once, works, time.perf_counter))
    return {
        "rates": rates,
        "trainings": trainings,
        "answers": [answer.as_dict() for answer in answers(rates, trainings)],
    }


def _rates(seconds: dict[str, list[float]]) -> Rates:
    return {side: [1 / value for value in values] for side, values in seconds.items()}


COMMAND = Command("vector", "vector environments", FULL, QUICK, measure, markdown, parts=[*SCENES])


if __name__ == "__main__":
    COMMAND.run()
