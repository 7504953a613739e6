"""Policies of runs that learned off policy, loaded from their folders."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.logging import Logger
from parllel.policies import load_policy
from parllel.replays import UniformReplay
from parllel.runners import OffPolicyRunner, train
from parllel.runners.runs import rebuild
from parllel.runs import RunFolder
from parllel.testing import LeakGuard
from parllel.torch import SAC, TD3, TorchHandler, sac_agent_for, td3_agent_for
from parllel.transforms import FinalObservations
from parllel_patterns import (
    SAC_DEFAULTS,
    TD3_DEFAULTS,
    build_cages,
    build_eval_sampler,
    build_sampler,
)


@dataclass(frozen=True)
class Config:
    kind: str = "sac"
    n_steps: int = 96
    random_steps: int = 40
    options: dict[str, Any] = field(default_factory=dict)


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OffPolicyRunner:
    seeds, batch_spec = Seeds(0), BatchSpec(8, 2)
    factory = partial(gym.make, "Pendulum-v1", max_episode_steps=30)
    cages = build_cages(factory, 2, seeds=seeds, stack=stack)
    make_agent: Any = {"sac": sac_agent_for, "td3": td3_agent_for}[config.kind]
    agent = make_agent(cages[0].spaces, seeds=seeds, hidden_sizes=(16, 16))
    sampler = build_sampler(
        batch_spec,
        cages,
        TorchHandler(agent, threads=1),
        batch_transforms=[FinalObservations()],
        n_batches=4,
    )
    replay = UniformReplay(sampler.samples, batch_size=16, discount=0.9, seed=1)
    algorithms: Any = {"sac": (SAC, SAC_DEFAULTS), "td3": (TD3, TD3_DEFAULTS)}
    algorithm, defaults = algorithms[config.kind]
    settings = {**defaults, "random_steps": config.random_steps, "seed": 2}
    eval_cages = build_cages(factory, 2, seeds=seeds, name="evaluation", stack=stack)
    return OffPolicyRunner(
        batch_spec,
        sampler,
        algorithm(agent, **settings),
        replay,
        replay_ratio=1.0,
        learning_starts=32,
        n_steps=config.n_steps,
        logger=Logger([]),
        log_interval_steps=48,
        eval_sampler=build_eval_sampler(eval_cages, sampler, 2),
        folder=folder,
        seeds=seeds,
        console=console,
    )


@pytest.mark.parametrize("kind", ["sac", "td3"])
# Random actions belong to sampling: a policy that was saved during them does not act at random.
@pytest.mark.parametrize("random_steps", [40, 1000])
@pytest.mark.few(2)
def test_a_loaded_policy_acts_as_in_evaluations(tmp_path, open_fonts, kind, random_steps):
    path = train(build, Config(kind, random_steps=random_steps), base=tmp_path, name=kind)[1].path
    with LeakGuard():
        policy = load_policy(path)
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with policy:
        first = policy.act(observations, list(range(5)))
        second = policy.act(observations, list(range(5)))
        one = policy.act_one(observations[3])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(one, first[3], rtol=1e-5)
    assert first.shape == (5, 1)
    # The bounds of Pendulum, and what the saved policy says.
    assert np.abs(first).max() <= 2
    agent_state = _state(path)
    layers = [
        (agent_state[f"network.layers.{i}.weight"], agent_state[f"network.layers.{i}.bias"])
        for i in range(3)
    ]
    x = observations
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight.T + bias, 0)
    expected = 2 * np.tanh(x @ layers[-1][0].T + layers[-1][1])[:, :1]
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-5)


def _state(path):
    with ExitStack() as stack:
        runner = rebuild(path, stack)
        agent = runner.eval_sampler.handler.agent
        return {name: np.array(array) for name, array in agent.state()["policy"].items()}


def test_learning_used_compiled_gradients(tmp_path, open_fonts):
    found = []

    def watched(config, stack, folder, console):
        runner = build(config, stack, folder, console)
        found.append(runner.algorithm)
        return runner

    train(watched, Config(), base=tmp_path, name="sac")
    (algorithm,) = found
    assert algorithm.update_method == "flat"
    assert algorithm.n_updates == 64
    assert torch.isfinite(algorithm.temperature)
