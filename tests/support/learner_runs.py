"""Runs of several learners whose batches are made up, so that they do not depend on how many there are."""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from rich.console import Console

from parllel import BatchSpec
from parllel.cages import VectorizedCage
from parllel.logging import JsonlWriter, Logger
from parllel.runners import Callback, OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import PPO, Learners, TorchHandler, agent_for
from parllel.transforms import (
    BatchTransform,
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
)
from parllel_patterns import build_eval_sampler, build_sampler

SPACES = {"categorical": Discrete(3), "gaussian": Box(-1.0, 1.0, (2,))}


@dataclass(frozen=True)
class Config:
    """Settings of a run.

    Attributes:
        real: whether the agent's own actions count, in place of made-up ones.
        fault: "kill", "stop" or "raise", which happens in the process of learner `who`.
        during: "sample", "learn" or "checkpoint", in the sixth batch or after it.
        on_ray: whether the others are actors; simulator: of this resource, what each of them needs.
        registered: id of a registered environment to make, in place of MadeUpEnv itself.
        mistake: "same seeds", "other sizes", "unknown transform", "own loss", "one callback", "no learners".
    """

    learners: int = 2
    seed: int = 0
    T: int = 8
    B: int = 4
    n_steps: int = 320
    head: str = "categorical"
    update: str = "flat"
    real: bool = False
    fault: str = ""
    during: str = ""
    who: int = 1
    mistake: str = ""
    timeout_s: float = 120.0
    start_method: str = "fork"
    on_ray: bool = False
    simulator: float = 0.0
    registered: str = ""


class Fault:
    """Happens once in one of the learners; does nothing in the others.

    Methods are called at the places where it may happen.
    """

    def __init__(self, config: Config, rank: int) -> None:
        self.kind, self.during = config.fault, config.during
        self.mine = rank == config.who
        self.after = 5 * config.T  # steps of each environment

    def see(self, during: str, steps: int) -> None:
        """Happen, if this is the place and the time."""
        if not (self.mine and during == self.during and steps > self.after):
            return
        if self.kind == "raise":
            raise ArithmeticError("no luck today")
        if self.kind:
            os.kill(os.getpid(), signal.SIGKILL if self.kind == "kill" else signal.SIGSTOP)


class MadeUpEnv(gym.Env[Any, Any]):
    """Observations and rewards are functions of the number of the environment and of the step."""

    def __init__(self, number: int, head: str, real: bool, fault: Fault | None = None) -> None:
        self.observation_space = Box(-9.0, 9.0, (4,))
        self.action_space = SPACES[head]
        self.number, self.real, self.total, self.left = number, real, 0, 0
        self.fault = fault

    def _observation(self) -> Any:
        return np.sin(np.arange(1, 5) * (0.37 * self.total + self.number)).astype(np.float32)

    def reset(self, **options: Any) -> Any:
        super().reset(**options)
        self.left = 3 + (self.number + self.total) % 5
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.total += 1
        self.left -= 1
        if self.fault is not None:
            self.fault.see("sample", self.total)
        reward = float(np.cos(0.7 * self.total * (1 + self.number)))
        if self.real:
            noise = self.np_random.normal() + random.random() + np.random.random()
            reward += float(np.sum(action)) + 0.1 * noise
        return self._observation(), reward, self.left == 0, False, {}

    def state(self) -> Any:
        if self.fault is not None:
            self.fault.see("checkpoint", self.total)
        generator = self.np_random.bit_generator.state
        return {"total": self.total, "left": self.left, "generator": generator}

    def load_state(self, state: Any) -> None:
        self.total, self.left = state["total"], state["left"]
        self.np_random.bit_generator.state = state["generator"]


class MadeUpActions(BatchTransform):
    """Replace actions, their probabilities and values by functions of environment and step."""

    column_wise = True

    def __init__(self, first: int, head: str) -> None:
        self.first, self.head, self.n = first, head, 0

    def transform_batch(self, samples: Any) -> None:
        T, B = np.asarray(samples.env.reward).shape
        self.n += 1
        step = np.arange(T)[:, np.newaxis] + T * self.n
        x = np.sin(1.3 * step * (1 + self.first + np.arange(B)))
        if self.head == "categorical":
            samples.agent.action[:] = (1.49 * (x + 1)).astype(int)
            log_prob = np.log(1 / 3) + 0.1 * x
        else:
            samples.agent.action[:] = np.stack([x, -x], axis=-1) * 0.5
            log_prob = -1.0 + 0.1 * x
        samples.agent.agent_info.log_prob[:] = log_prob
        samples.agent.agent_info.value[:] = 0.1 * x[::-1]

    def state(self) -> Any:
        return {"n": self.n}

    def load_state(self, state: Any) -> None:
        self.n = state["n"]


class Unknown(BatchTransform):
    def transform_batch(self, samples: Any) -> None:
        pass


class Disturb(Callback):
    """Change the weights of the first learner only."""

    def __init__(self, algorithm: PPO) -> None:
        self.algorithm = algorithm

    def after_optimization(self, elapsed_steps: int, diagnostics: Any) -> None:
        with torch.no_grad():
            self.algorithm.trained_parameters[0].add_(1e-3)


class FaultyPPO(PPO):
    """Meets its fault between two exchanges of an update."""

    fault: Fault
    steps = 0

    def optimize_agent(self, elapsed_steps: int, samples: Any) -> Any:
        self.steps += len(samples.env.reward)
        self.n_updates = 0
        return super().optimize_agent(elapsed_steps, samples)

    def should_stop(self, diagnostics: Any) -> bool:
        self.n_updates += 1
        if self.n_updates == 4:
            self.fault.see("learn", self.steps)
        return super().should_stop(diagnostics)


class OwnLoss(FaultyPPO):
    def loss(self, inputs: Any) -> Any:
        return super().loss(inputs)


def learners_of(config: Config) -> Any:
    """Return the learners of a run, which are entered by the caller."""
    if config.on_ray:
        # Not above: most tests need no Ray.
        from parllel.distributed.rollouts.on_ray import RayLearners, WorkerOptions

        # Reserved together, for which more has to be given back.
        options = WorkerOptions(resources={"simulator": config.simulator}, placement="pack")
        return RayLearners(
            config.learners, build, config, options=options, timeout_s=config.timeout_s
        )
    return Learners(
        config.learners,
        build,
        config,
        timeout_s=config.timeout_s,
        start_method=config.start_method,
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build the run of one learner."""
    learners = stack.enter_context(learners_of(config))
    batch_spec = learners.share_of(BatchSpec(config.T, config.B))
    if config.mistake == "other sizes" and learners.rank:
        batch_spec = BatchSpec(config.T, batch_spec.B + 1)
    seeds = learners.seeds(config.seed)
    first = learners.rank * batch_spec.B
    environments = 0 if config.mistake == "same seeds" else first
    random.seed(learners.rank)
    np.random.seed(learners.rank)
    torch.manual_seed(learners.rank)
    fault = Fault(config, learners.rank)
    make = partial(gym.make, config.registered) if config.registered else MadeUpEnv
    factories = [
        partial(make, number=first + b, head=config.head, real=config.real, fault=fault)
        for b in range(batch_spec.B)
    ]
    cages = [VectorizedCage(factories, seeds=[100 + environments + b for b in range(batch_spec.B)])]
    agent = agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=(8, 8))
    transforms = [
        *([] if config.real else [MadeUpActions(first, config.head)]),
        NormalizeRewards(0.9),
        EstimateAdvantage(0.9, 0.9, reward="env.normalized_reward"),
        NormalizeAdvantage(),
        *([Unknown()] if config.mistake == "unknown transform" else []),
    ]
    sampler = stack.enter_context(
        build_sampler(batch_spec, cages, TorchHandler(agent), [NormalizeObservations()], transforms)
    )
    evaluation = [VectorizedCage([partial(MadeUpEnv, 50, config.head, config.real)], seeds=[1000])]
    algorithm = (OwnLoss if config.mistake == "own loss" else FaultyPPO)(
        agent,
        learning_rate=1e-3,
        learning_rate_anneal_steps=1000,
        epochs=2,
        minibatches=3,
        ratio_clip=0.2,
        value_clip=None,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.01,
        clip_grad_norm=0.05,
        kl_limit=None,
        seed=seeds.integer("algorithm"),
        update=config.update,
    )
    algorithm.fault = fault
    return OnPolicyRunner(
        batch_spec,
        sampler,
        algorithm,
        learners=None if config.mistake == "no learners" and learners.rank else learners,
        n_steps=config.n_steps,
        logger=stack.enter_context(Logger([JsonlWriter(folder.path)])),
        log_interval_steps=64,
        eval_sampler=stack.enter_context(build_eval_sampler(evaluation, sampler, 1)),
        folder=folder,
        console=console,
        checkpoint_interval_s=0.0,
        callbacks=[Disturb(algorithm)] if config.mistake == "one callback" else [],
    )
