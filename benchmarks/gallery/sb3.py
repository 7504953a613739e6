"""Stable-Baselines3 with the same settings, in a separate virtual environment.

What differs in meaning: its PPO normalises advantages per minibatch, ours per batch; its DQN starts from
PyTorch's default weights, ours from orthogonal ones, acts at random before `learning_starts`, and explores in
all environments at once.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3  # type: ignore[import-not-found]
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]
from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]
from stable_baselines3.common.vec_env import VecNormalize  # type: ignore[import-not-found]

from benchmarks.end_to_end.settings import Reporter
from benchmarks.gallery.job import Job
from benchmarks.harness.child import end_with_parent
from parllel_patterns import TunedConfig, TunedDqn, TunedPpo, TunedSac, make_tuned_env


class Curve(BaseCallback):  # type: ignore[misc]
    """Mean returns of the episodes between rows, as the rows of our runs have them."""

    def __init__(self, interval_steps: int) -> None:
        super().__init__()
        self.interval_steps = interval_steps
        self.points: list[tuple[int, float]] = []
        self._returns: list[float] = []

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self._returns += [float(info["episode"]["r"]) for info in infos if "episode" in info]
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps % self.interval_steps == 0:
            self._add_point()

    def _on_training_end(self) -> None:
        self._add_point()

    def _add_point(self) -> None:
        if self._returns:
            self.points.append((self.num_timesteps, statistics.fmean(self._returns)))
            self._returns = []


def make_ppo(env: Any, config: TunedPpo, common: dict[str, Any]) -> Any:
    """Return PPO."""
    ppo, sizes = config.ppo, list(config.hidden_sizes)
    learning_rate: float | Callable[[float], float] = ppo.learning_rate
    if ppo.learning_rate_anneal_steps is not None:
        assert ppo.learning_rate_anneal_steps == config.n_steps
        # What is left is counted after the batch there, before it here.
        batch = config.T * config.B / config.n_steps
        learning_rate = partial(_annealed, ppo.learning_rate, batch)
    assert ppo.kl_limit is None
    assert ppo.clip_grad_norm is not None
    return PPO(
        "MlpPolicy",
        env,
        learning_rate=learning_rate,
        n_steps=config.T,
        batch_size=config.T * config.B // ppo.minibatches,
        n_epochs=ppo.epochs,
        gae_lambda=config.gae_lambda,
        clip_range=ppo.ratio_clip,
        clip_range_vf=ppo.value_clip,
        ent_coef=ppo.entropy_loss_coeff,
        # The error is not halved there.
        vf_coef=ppo.value_loss_coeff / 2,
        max_grad_norm=ppo.clip_grad_norm,
        policy_kwargs={
            "net_arch": {"pi": sizes, "vf": sizes},
            "log_std_init": config.initial_log_std,
        },
        **common,
    )


def _annealed(learning_rate: float, batch: float, left: float) -> float:
    return learning_rate * (left + batch)


def _off_policy(config: TunedDqn | TunedSac) -> dict[str, Any]:
    return {
        "buffer_size": config.replay_steps,
        "learning_starts": config.learning_starts,
        "batch_size": config.batch_size,
        "train_freq": config.T,
        "gradient_steps": round(config.T * config.B * config.replay_ratio),
        "policy_kwargs": {"net_arch": list(config.hidden_sizes)},
    }


def make_dqn(env: Any, config: TunedDqn, common: dict[str, Any]) -> Any:
    """Return DQN, whose target network is updated after a number of environment steps."""
    dqn = config.dqn
    assert not dqn.double
    assert dqn.huber_delta == 1.0
    assert dqn.learning_rate_anneal_steps is None
    assert dqn.clip_grad_norm is not None
    assert dqn.initial_epsilon is not None
    return DQN(
        "MlpPolicy",
        env,
        learning_rate=dqn.learning_rate,
        target_update_interval=round(dqn.target_update_interval / config.replay_ratio),
        tau=dqn.tau,
        max_grad_norm=dqn.clip_grad_norm,
        exploration_fraction=dqn.epsilon_anneal_steps / config.n_steps,
        exploration_initial_eps=dqn.initial_epsilon,
        exploration_final_eps=dqn.final_epsilon,
        **_off_policy(config),
        **common,
    )


def make_sac(env: Any, config: TunedSac, common: dict[str, Any]) -> Any:
    """Return SAC."""
    sac = config.sac
    assert sac.learn_temperature
    assert sac.target_entropy is None
    assert sac.random_steps == config.learning_starts
    return SAC(
        "MlpPolicy",
        env,
        learning_rate=sac.learning_rate,
        tau=sac.tau,
        ent_coef=f"auto_{sac.initial_temperature}",
        **_off_policy(config),
        **common,
    )


def build(config: TunedConfig) -> Any:
    """Return the algorithm with its environments."""
    factory = partial(make_tuned_env, config.env_id)
    env = make_vec_env(factory, config.B, seed=config.seed)
    common = {"gamma": config.discount, "seed": config.seed, "device": "cpu"}
    if isinstance(config, TunedPpo):
        env = VecNormalize(env, gamma=config.discount) if config.normalize else env
        return make_ppo(env, config, common)
    if isinstance(config, TunedDqn):
        return make_dqn(env, config, common)
    return make_sac(env, config, common)


def evaluate(model: Any, job: Job) -> list[float]:
    """Return the returns of episodes with the most likely actions, one for each seed."""
    env, normalizer = make_tuned_env(job.config.env_id), model.get_vec_normalize_env()
    returns = []
    for seed in job.eval_seeds:
        observation, _ = env.reset(seed=seed)
        return_, done = 0.0, False
        while not done:
            if normalizer is not None:
                observation = normalizer.normalize_obs(np.asarray(observation))
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            return_, done = return_ + float(reward), terminated or truncated
        returns.append(return_)
    env.close()
    return returns


def main(job: Job) -> None:
    """Train, evaluate and report."""
    end_with_parent()
    torch.set_num_threads(1)
    reporter, config = Reporter(), job.config
    reporter.ready(
        torch=torch.__version__,
        gymnasium=gymnasium.__version__,
        stable_baselines3=stable_baselines3.__version__,
    )
    began = time.process_time()
    model, curve = build(config), Curve(config.log_interval_steps)
    # No log is written: what it would cost is not the question.
    model.learn(config.n_steps, curve, log_interval=10**9)
    cpu_s = time.process_time() - began
    returns = evaluate(model, job)
    model.get_env().close()
    reporter.result(
        steps=int(model.num_timesteps), cpu_s=cpu_s, curve=curve.points, returns=returns
    )
    reporter.end()


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]))
