"""Train PPO on CartPole without velocities, which only a recurrent policy can infer.

The curves in this folder were written by:

    python examples/cartpole_memory/train_ppo.py --seeds 0 1 2 --memory lstm none \
        --curve examples/cartpole_memory/curve
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from rich.console import Console

from parllel import BatchSpec, Seeds
from parllel.cages import TrajInfo
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
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage, NormalizeRewards
from parllel_patterns import (
    CurveFile,
    PpoParameters,
    build_cages,
    build_eval_sampler,
    build_logger,
    build_sampler,
    main_for_each,
)


@dataclass(frozen=True)
class Config:
    """Settings of a run.

    Attributes:
        memory: "lstm", "gru", or "none" for a policy without memory.
    """

    seed: int = 0  # source of all random numbers
    device: str = "cpu"  # of the model, such as "cuda"
    memory: Literal["lstm", "gru", "none"] = "lstm"
    prev_action: bool = True  # whether the policy sees its last action
    T: int = 128  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 500_000  # environment steps to train for
    log_interval_steps: int = 20_480  # environment steps between rows of the log
    n_eval_episodes: int = 32  # episodes of an evaluation
    target_return: float = 475.0  # mean evaluation return at which the run ends
    hidden_sizes: tuple[int, ...] = (64,)  # of the networks
    rnn_size: int = 64  # of the memory
    discount: float = 0.99  # of rewards, per step
    gae_lambda: float = 0.95  # lambda of generalised advantage estimation
    ppo: PpoParameters = field(
        default_factory=lambda: PpoParameters(
            learning_rate=1e-3, learning_rate_anneal_steps=500_000, epochs=8
        )
    )


class ForgetfulModel(RecurrentPgModel):
    """RecurrentPgModel with its memory cleared at every step."""

    def forward(self, observation: Any, rnn_state: Any, prev_action: Any = None) -> Any:
        """Return logits and values [T, N, ...], each computed only from its own row."""
        T, N = observation.shape[:2]
        one_row = observation.flatten(0, 1)[None]
        output, _ = super().forward(one_row, self.initial_state(T * N))
        params, value = (x[0].unflatten(0, (T, N)) for x in output)
        return type(output)(params, value), rnn_state


def make_env(**options: Any) -> gym.Env[Any, Any]:
    """Make CartPole with the positions of cart and pole only."""
    env = gym.make("CartPole-v1", **options)
    space = env.observation_space
    shown = gym.spaces.Box(space.low[::2], space.high[::2])  # type: ignore[attr-defined]
    return gym.wrappers.TransformObservation(env, lambda seen: np.array(seen[::2]), shown)


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    traj_info = partial(TrajInfo, discount=config.discount)
    cages = build_cages(
        make_env,
        config.B,
        seeds=seeds,
        traj_info=traj_info,
        reset_automatically=False,
        stack=stack,
    )
    n_actions = int(cages[0].spaces.action.n)  # type: ignore[attr-defined]

    prev_action = config.prev_action and config.memory != "none"
    make_model = ForgetfulModel if config.memory == "none" else RecurrentPgModel
    model = make_model(
        cages[0].spaces.observation.shape or (),
        CategoricalHead(n_actions),
        config.hidden_sizes,
        config.rnn_size,
        cell="gru" if config.memory == "gru" else "lstm",
        prev_action=prev_action,
        seed=seeds.integer("model"),
    )
    agent = RecurrentPgAgent(
        model,
        Categorical(n_actions),
        prev_action=0 if prev_action else None,
        seed=seeds.integer("agent"),
        device=config.device,
    )
    handler = TorchHandler(agent)
    batch_transforms = [
        # Policy and value share a recurrent trunk, which large returns would fit to the value only.
        NormalizeRewards(config.discount),
        EstimateAdvantage(config.discount, config.gae_lambda, reward="env.normalized_reward"),
        NormalizeAdvantage(),
    ]
    sampler = build_sampler(
        batch_spec,
        cages,
        handler,
        batch_transforms=batch_transforms,
        decorrelation_steps=20,
        decorrelation_seed=seeds.sequence("decorrelation"),
    )
    make_eval_env = partial(make_env, render_mode="rgb_array")
    eval_cages = build_cages(
        make_eval_env, 16, seeds=seeds, name="evaluation", traj_info=traj_info, stack=stack
    )
    algorithm = RecurrentPPO(agent, **config.ppo, seed=seeds.integer("algorithm"))
    return OnPolicyRunner(
        batch_spec,
        sampler,
        algorithm,
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
    curve = CurveFile()
    runs = main_for_each(
        build,
        Config,
        {"--seeds": "--seed", "--memory": "--memory"},
        base="runs/cartpole_memory",
        name=lambda c: f"ppo-{c.memory}-seed{c.seed}",
        curve=curve,
    )
    curves = {}
    for result, folder in runs:
        config = folder.read_record().config
        curves[f"{config['memory']}, seed {config['seed']}"] = result.curves["evaluation"]
    curve.write(runs, curves, title="PPO on CartPole without velocities")
