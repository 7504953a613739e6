"""Runs of every kind that a policy may come from, each trained for a moment."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import FrameStackObservation
from mpe2 import simple_spread_v3
from rich.console import Console
from torch import nn

from parllel import BatchSpec, Seeds
from parllel.distributed.rollouts import (
    EpisodeStatistics,
    FragmentSampler,
    FragmentSender,
    LocalRollouts,
    ReplayBuffer,
    RolloutWorker,
    SynchronousSchedule,
    Trainer,
    WorkerContext,
)
from parllel.envs import ParallelEnvAdapter
from parllel.logging import Logger
from parllel.runners import AsynchronousRunner, OnPolicyRunner
from parllel.runs import RunFolder
from parllel.samplers import AsynchronousSampler, EvalSampler, Plan
from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    CpuSamplingHandler,
    MultiAgentPPO,
    PgModel,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    SmallPolicyHandler,
    TorchHandler,
    agent_for,
    agents_for,
)
from parllel.torch.distributions.categorical import Categorical
from parllel.transforms import (
    EstimateAdvantage,
    EstimateMultiAgentAdvantage,
    NormalizeObservations,
)
from parllel_patterns import (
    PPO_DEFAULTS,
    allocate_eval_samples,
    allocate_samples,
    build_cages,
    build_eval_sampler,
    build_rollout_sampler,
    build_sampler,
)

B = 4
NORMALIZED = ("normalized", "fragments")


@dataclass(frozen=True)
class Config:
    """What kind of run; `processes`: environments of the evaluation in workers."""

    kind: str = "normalized"
    evaluate: bool = True
    processes: bool = False
    device: str = "cpu"
    n_steps: int = 3 * 8 * B


class BySide(nn.Module):
    """A policy that is told on which side of an odd line its environment is."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.model = PgModel((5,), CategoricalHead(2), (16,), seed, policy_gain=5.0)

    def forward(self, observation: Any, side: Any) -> Any:
        return self.model(torch.cat((observation, side[:, None]), dim=-1))


class ByColumn(TorchHandler):
    """Tell it by the column of the run."""

    sides = torch.tensor([-9.0, 9.0] * (B // 2))

    def agent_inputs(self, observation: Any, rows: Any, columns: Any) -> Any:
        return {"observation": observation, "side": self.sides[columns]}


class SidePPO(PPO):
    def construct_agent_inputs(self, samples: Any) -> Any:
        inputs = super().construct_agent_inputs(samples)
        inputs.agent["side"] = ByColumn.sides.repeat(len(inputs.return_) // B)
        return inputs


class Played(gym.Wrapper[Any, Any, Any, Any]):
    """Keep what was played: for each episode its actions and rewards."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.episodes: list[list[Any]] = []

    def reset(self, **arguments: Any) -> Any:
        self.episodes.append([])
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self.episodes[-1].append((action, result[1]))
        return result


def pendulum() -> gym.Env[Any, Any]:
    """Make an environment whose actions are clipped, and whose observations differ in scale."""
    return Played(gym.make("Pendulum-v1", max_episode_steps=20, render_mode="rgb_array"))


def half_blind_cart() -> gym.Env[Any, Any]:
    """Make CartPole with positions only."""
    env = gym.make("CartPole-v1", max_episode_steps=40)
    space: Any = env.observation_space
    shown = gym.spaces.Box(space.low[::2], space.high[::2])
    return Played(gym.wrappers.TransformObservation(env, lambda seen: np.array(seen[::2]), shown))


def spread() -> gym.Env[Any, Any]:
    """Make an environment of three agents."""
    return Played(ParallelEnvAdapter(simple_spread_v3.parallel_env(max_cycles=10)))


def cart() -> gym.Env[Any, Any]:
    """Make CartPole."""
    return Played(gym.make("CartPole-v1", max_episode_steps=40))


class Screen(gym.Env[Any, Any]):
    """Show a picture that the actions change, for stacks of frames."""

    observation_space = gym.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self.picture = self.np_random.integers(0, 255, (36, 36), np.uint8)
        return self.picture, {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.picture = np.roll(self.picture, int(action), axis=self.steps % 2)
        return self.picture, float(action), False, self.steps == 6, {}


def screen() -> gym.Env[Any, Any]:
    """Make stacks of four pictures."""
    return Played(FrameStackObservation(Screen(), 4))


MAKE = {
    "normalized": pendulum,
    "fragments": pendulum,
    "recurrent": half_blind_cart,
    "several_agents": spread,
    "frames": screen,
    "small_policy": cart,
    "extra_input": cart,
    "sampled_elsewhere": cart,
    "asynchronous": cart,
}


def make_agent(kind: str, spaces: Any, seeds: Seeds, device: str = "cpu") -> Any:
    if kind == "extra_input":
        return CategoricalPgAgent(BySide(seeds.integer("model")), 2, seed=seeds.integer("agent"))
    if kind == "recurrent":
        model = RecurrentPgModel(
            spaces.observation.shape,
            CategoricalHead(2),
            (8,),
            8,
            cell="lstm",
            prev_action=True,
            seed=seeds.integer("model"),
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 4  # until it does not always do the same
        return RecurrentPgAgent(model, Categorical(2), prev_action=0, seed=seeds.integer("agent"))
    make = partial(agents_for, sharing="independent") if kind == "several_agents" else agent_for
    gain: Any = (
        {} if kind == "several_agents" else {"policy_gain": 5.0 if kind in NORMALIZED else 1.0}
    )
    return make(spaces, seeds=seeds, hidden_sizes=(16,), device=device, **gain)


def training_sampler(config: Config, seeds: Seeds, stack: ExitStack | None = None) -> Any:
    """Put the sampler together."""
    kind, make_env = config.kind, MAKE[config.kind]
    batch_spec = BatchSpec(8, B)
    cages = build_cages(
        make_env,
        B,
        seeds=seeds,
        parallel=Plan(1, 0) if kind == "small_policy" else False,
        reset_automatically=kind != "recurrent",
        stack=stack,
    )
    agent = make_agent(kind, cages[0].spaces, seeds, config.device)
    advantage: Any = EstimateAdvantage(0.98, 0.9)
    if kind == "several_agents":
        advantage = EstimateMultiAgentAdvantage(0.98, 0.9)
    if kind == "small_policy":
        return build_rollout_sampler(batch_spec, cages, SmallPolicyHandler(agent), [advantage])
    steps = [NormalizeObservations()] if kind in NORMALIZED else []
    options: dict[str, dict[str, Any]] = {
        "frames": {"frames": 4},
        "fragments": {"next_observation": True},
    }
    handlers = {"extra_input": ByColumn, "sampled_elsewhere": CpuSamplingHandler}
    handler = handlers.get(kind, TorchHandler)(agent)
    return build_sampler(batch_spec, cages, handler, steps, [advantage], **options.get(kind, {}))


def fragment_sampler(config: Config, cages: Any, seeds: Seeds, stack: ExitStack) -> Any:
    """Put a sampler together whose fragments a worker makes in a thread."""
    batch_spec = BatchSpec(8, B)
    buffer, statistics = stack.enter_context(ReplayBuffer(B)), EpisodeStatistics()

    def build_worker(context: WorkerContext) -> RolloutWorker:
        sender = FragmentSender(context.storage)
        context.stack.callback(sender.close, 0.0)
        schedule = SynchronousSchedule(training_sampler(config, Seeds(1)))
        return RolloutWorker(
            schedule, fragment_length=8, seed=2, sender=sender, statistics=context.statistics
        )

    workers = stack.enter_context(LocalRollouts(build_worker, 1, buffer, statistics))
    handler = TorchHandler(make_agent(config.kind, cages[0].spaces, seeds))
    steps, batch = [NormalizeObservations()], [EstimateAdvantage(0.98, 0.9)]
    samples = allocate_samples(cages, batch_spec, handler, [*steps, *batch])
    sampler = FragmentSampler(
        batch_spec,
        buffer,
        handler,
        samples,
        steps,
        batch,
        workers=workers,
        statistics=statistics,
    )
    return stack.enter_context(sampler)


def build(config: Config, stack: ExitStack, folder: RunFolder, console: Console | None) -> Any:
    """Put a run together."""
    seeds, kind = Seeds(0), config.kind
    eval_cages = build_cages(
        MAKE[kind],
        B,
        seeds=seeds,
        name="evaluation",
        parallel=Plan(2, 0) if config.processes else False,
        stack=stack,
    )
    if kind == "asynchronous":
        agent = make_agent(kind, eval_cages[0].spaces, seeds)
        make = partial(training_sampler, config, Seeds(0))
        sampler: Any = stack.enter_context(AsynchronousSampler(make, agent=agent))
        eval_sampler = EvalSampler(
            eval_cages, TorchHandler(agent), allocate_eval_samples(eval_cages), B
        )
        runner: Any = AsynchronousRunner
    elif kind == "fragments":
        sampler = fragment_sampler(config, eval_cages, seeds, stack)
        agent, runner = sampler.agent, Trainer
        eval_sampler = build_eval_sampler(eval_cages, sampler, B)
    else:
        sampler = training_sampler(config, seeds, stack)
        agent, runner = sampler.handler.agent, OnPolicyRunner
        agent = getattr(agent, "trained", None) or agent
        eval_sampler = build_eval_sampler(eval_cages, sampler, B)
    learners = {"several_agents": MultiAgentPPO, "recurrent": RecurrentPPO, "extra_input": SidePPO}
    learn: Any = learners.get(kind, PPO)
    return runner(
        BatchSpec(8, B),
        sampler,
        learn(agent, **PPO_DEFAULTS, seed=seeds.integer("algorithm")),
        n_steps=config.n_steps,
        logger=stack.enter_context(Logger([])),
        log_interval_steps=8 * B,
        eval_sampler=eval_sampler if config.evaluate else None,
        folder=folder,
        seeds=seeds,
        console=console,
    )
