"""Train recurrent PPO on a compiled maze, in which a cue at the start says where to turn at the end.

         UP
cue -------+   After UP the reward is 1 if the cue was 1, otherwise -1. After DOWN it is the
        DOWN   opposite. At the junction all observations are the same.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.envs.compiled import compiled_env
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import (
    Categorical,
    CategoricalHead,
    RecurrentPgAgent,
    RecurrentPgModel,
    RecurrentPPO,
    TorchHandler,
)
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import (
    PpoParameters,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main,
)

FORWARD, UP, DOWN = range(3)
MAX_STEPS = 40


@compiled_env
class CueMaze:
    """A corridor with a junction at its end. Actions: forward, up, down.

    Observations: the cue at the start, 1 or -1, and 0 elsewhere; 1 at the junction and 0 elsewhere.

    Parameters: `length` of the corridor in steps, and the reward of each step before the last.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(3)
    state = np.dtype([("cue", np.int64), ("place", np.int64)])
    parameters = {"length": 8, "step_reward": -0.01}
    max_episode_steps = MAX_STEPS

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.cue = 2 * rng.integers(0, 2) - 1
        state.place = 0

    @staticmethod
    def step(state: Any, action: Any, rng: Any) -> Any:
        if action == FORWARD:
            state.place = min(state.place + 1, state.length)
        elif state.place == state.length:
            right = (action == UP) == (state.cue == 1)
            return 1.0 if right else -1.0, True
        return state.step_reward, False

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0] = state.cue if state.place == 0 else 0
        out[1] = state.place == state.length


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the model, such as "cuda"
    length: int = 8  # steps from the cue to the junction
    memory: Literal["lstm", "gru"] = "gru"  # kind of the memory
    B: int = 64  # parallel environments
    n_steps: int = 300_000  # environment steps to train for
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    n_eval_episodes: int = 64  # episodes of an evaluation
    target_return: float = 0.9  # mean evaluation return at which the run ends
    rnn_size: int = 32  # of the memory
    discount: float = 0.99  # of rewards, per step
    gae_lambda: float = 0.95  # lambda of generalised advantage estimation
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(learning_rate=3e-3, epochs=4, minibatches=4)
    )


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    # Batches end early, when all episodes have ended.
    seeds, batch_spec = Seeds(config.seed), BatchSpec(MAX_STEPS, config.B)
    # mypy ignores what decorators of classes return.
    make_env: Any = partial(CueMaze, length=config.length)  # type: ignore[call-arg]
    cages = build_cages(make_env, config.B, seeds=seeds, reset_automatically=False, stack=stack)
    model = RecurrentPgModel(
        (2,),
        CategoricalHead(3),
        (32,),
        config.rnn_size,
        cell=config.memory,
        seed=seeds.integer("model"),
    )
    agent = RecurrentPgAgent(
        model, Categorical(3), seed=seeds.integer("agent"), device=config.device
    )
    transforms = [EstimateAdvantage(config.discount, config.gae_lambda), NormalizeAdvantage()]
    sampler = build_sampler(batch_spec, cages, TorchHandler(agent), [], transforms)
    eval_cages = build_cages(make_env, 16, seeds=seeds, name="evaluation", stack=stack)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        RecurrentPPO(agent, **config.ppo, seed=seeds.integer("algorithm")),
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(eval_cages, sampler, config.n_eval_episodes),
        target_return=config.target_return,
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    result, _ = main(build, Config, base="runs/compiled_memory", name=lambda c: f"ppo-seed{c.seed}")
    raise SystemExit(result.exit_status or int(not result.solved))
