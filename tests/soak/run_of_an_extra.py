"""A run of random actions that is over in a moment, and a part of it that needs an extra.

python run_of_an_extra.py --part torch --runs DIR
"""

from __future__ import annotations

import importlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.agents import Handler, NumpyHandler, RandomAgent
from parllel.algos import Algorithm
from parllel.logging import CsvWriter, Logger, TensorBoardWriter, TextWriter, Writer
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.samplers import BasicSampler, EvalSampler
from parllel_patterns import allocate_eval_samples, allocate_samples, build_cages, main

# What the script of a run with such a part imports.
IMPORTS = {"torch": "parllel.torch", "jax": "parllel.jax", "multiagent": "mpe2"}


@dataclass(frozen=True)
class Config:
    """What the run is made of."""

    part: str = "core"  # core, torch, jax, export, tensorboard or multiagent
    seed: int = 0
    n_steps: int = 60


class Pictures(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that draws itself without pygame."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1", render_mode="rgb_array"))

    def render(self) -> Any:
        return np.zeros((64, 64, 3), np.uint8)


class Nothing(Algorithm):
    """Learn nothing."""

    def optimize_agent(self, elapsed_steps: int, samples: Any) -> dict[str, Any]:
        return {}


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put the run together."""
    if config.part in IMPORTS:
        importlib.import_module(IMPORTS[config.part])
    seeds, batch_spec = Seeds(config.seed), BatchSpec(10, 2)
    cages = build_cages(Pictures, 2, seeds=seeds, stack=stack)
    eval_cages = build_cages(Pictures, 2, seeds=seeds, name="evaluation", stack=stack)
    handler: Handler
    if config.part == "export":
        from parllel.torch import TorchHandler, agent_for

        handler = TorchHandler(agent_for(cages[0].spaces, seeds=seeds))
    else:
        handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seeds.integer("agent")))
    samples = allocate_samples(cages, batch_spec, handler)
    writers: list[Writer] = [CsvWriter(folder.path), TextWriter(folder.path)]
    if config.part == "tensorboard":
        writers.append(TensorBoardWriter(folder.path))
    return OnPolicyRunner(
        batch_spec,
        BasicSampler(batch_spec, cages, handler, samples),
        Nothing(),
        n_steps=config.n_steps,
        logger=stack.enter_context(Logger(writers)),
        log_interval_steps=20,
        eval_sampler=EvalSampler(eval_cages, handler, allocate_eval_samples(eval_cages), 2),
        folder=folder,
        seeds=seeds,
        checkpoint_interval_s=0,
        console=console,
    )


if __name__ == "__main__":
    main(build, Config, base=str(Path("runs")), name=lambda config: config.part)
