"""Runs of every kind of agent, whose weights are shaken instead of trained."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.algos import Algorithm
from parllel.logging import CsvWriter, Logger
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import (
    Categorical,
    CategoricalHead,
    Gaussian,
    GaussianHead,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentQAgent,
    RecurrentQModel,
    TorchHandler,
    agent_for,
    q_agent_for,
    sac_agent_for,
    td3_agent_for,
)
from parllel.transforms import NormalizeObservations
from parllel_patterns import build_cages, build_eval_sampler, build_sampler

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float64)
# Narrow, so that actions are clipped.
BOX = spaces.Box(np.array([-0.2, 0]), np.array([0.3, 0.5]), (2,), np.float64)
PARTS = spaces.Dict(
    {
        "position": spaces.Box(-np.inf, np.inf, (2, 2), np.float32),
        "mode": spaces.Discrete(4, start=1),
        "allowed": spaces.MultiBinary(3),
    }
)
SPACES: dict[str, tuple[Any, Any]] = {
    "categorical": (VECTOR, spaces.Discrete(3, start=2)),
    "gaussian": (VECTOR, BOX),
    "multi_discrete": (VECTOR, spaces.MultiDiscrete([2, 3])),
    "sac": (VECTOR, BOX),
    "td3": (VECTOR, BOX),
    "dqn": (VECTOR, spaces.Discrete(4)),
    "lstm": (VECTOR, spaces.Discrete(3)),
    "gaussian_gru": (VECTOR, BOX),
    "r2d1": (VECTOR, spaces.Discrete(3)),
    "parts": (PARTS, spaces.Discrete(3)),
    "bfloat16": (spaces.Box(0, 255, (4, 36, 36), np.uint8), spaces.Discrete(3)),
    "images": (spaces.Box(0, 255, (4, 36, 36), np.uint8), spaces.Discrete(3)),
}
# Its actions may depend on the number of rows, where two are nearly equal.
EXACT = [kind for kind in SPACES if kind != "bfloat16"]
RECURRENT = ("lstm", "gaussian_gru", "r2d1")
NORMALIZED = ("categorical", "gaussian", "sac", "lstm", "r2d1")


@dataclass(frozen=True)
class Config:
    """Which kind of agent."""

    kind: str = "categorical"


class RandomEnv(gym.Env[Any, Any]):
    """Shows random observations, in episodes of five steps."""

    def __init__(self, kind: str) -> None:
        self.observation_space, self.action_space = SPACES[kind]
        self.spec = gym.envs.registration.EnvSpec(f"Random-{kind}-v0", entry_point=RandomEnv)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), 1.0, False, self.steps == 5, {}


class Shake(Algorithm):
    """Adds noise to the weights, until actions depend on observations."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def optimize_agent(self, elapsed_steps: int, samples: Any) -> Any:
        generator = torch.Generator().manual_seed(elapsed_steps)
        with torch.no_grad():
            for parameter in self.agent.model.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
        return {"loss": 1.0}


def make_agent(kind: str, of_envs: Any) -> Any:
    """Return an agent of this kind."""
    seeds: Any = {"seeds": Seeds(0)}
    if kind == "lstm":
        model: Any = RecurrentPgModel(
            5, CategoricalHead(3), (8,), 8, cell="lstm", prev_action=True, seed=0
        )
        return RecurrentPgAgent(model, Categorical(3), prev_action=0, seed=0)
    if kind == "gaussian_gru":
        zeros = np.zeros(2, np.float32)
        model = RecurrentPgModel(
            5, GaussianHead(2, 0.0), (), 8, cell="gru", prev_action=True, seed=0
        )
        return RecurrentPgAgent(model, Gaussian(2), prev_action=zeros, seed=0)
    if kind == "r2d1":
        model = RecurrentQModel(5, 3, (8,), 8, cell="lstm", dueling=True, prev_action=True, seed=0)
        return RecurrentQAgent(model, 3, prev_action=True, seed=0)
    if kind in ("sac", "td3"):
        make: Any = {"sac": sac_agent_for, "td3": td3_agent_for}[kind]
        return make(of_envs, hidden_sizes=(16, 16), **seeds)
    if kind == "dqn":
        return q_agent_for(of_envs, hidden_sizes=(16,), dueling=True, **seeds)
    if kind == "bfloat16":
        lower: Any = {"compute_dtype": torch.bfloat16}
        return q_agent_for(of_envs, hidden_sizes=(16,), **lower, **seeds)
    if kind == "parts":
        return agent_for(of_envs, hidden_sizes=(16,), action_mask="allowed", **seeds)
    return agent_for(of_envs, hidden_sizes=(16,), **seeds)


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Put a run together."""
    kind, seeds, batch_spec = config.kind, Seeds(0), BatchSpec(6, 2)
    make_env = partial(RandomEnv, kind)
    cages = build_cages(
        make_env, 2, seeds=seeds, reset_automatically=kind not in RECURRENT, stack=stack
    )
    steps = [NormalizeObservations()] if kind in NORMALIZED else []
    if kind == "parts":
        steps = [NormalizeObservations("env.observation.position")]
    agent = make_agent(kind, cages[0].spaces)
    sampler = build_sampler(batch_spec, cages, TorchHandler(agent, threads=1), steps)
    eval_cages = build_cages(make_env, 2, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        Shake(agent),
        n_steps=5 * batch_spec.size,
        logger=stack.enter_context(Logger([CsvWriter(folder.path)])),
        log_interval_steps=batch_spec.size,
        eval_sampler=build_eval_sampler(eval_cages, sampler, 4),
        folder=folder,
        seeds=seeds,
        console=console,
    )
