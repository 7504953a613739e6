"""Stable-Baselines3's PPO with its own helpers, in a separate virtual environment."""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import stable_baselines3  # type: ignore[import-not-found]
import torch
from stable_baselines3 import PPO  # type: ignore[import-not-found]
from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]
from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]
from stable_baselines3.common.vec_env import (  # type: ignore[import-not-found]
    DummyVecEnv,
    SubprocVecEnv,
    VecNormalize,
)

from benchmarks.end_to_end.settings import Reporter, Settings

VEC_ENVS: dict[str, Any] = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}


class Report(BaseCallback):  # type: ignore[misc]
    """Report each batch when the next one begins: only then has it been learnt from."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self.reporter = reporter
        self.sampled_at: float | None = None
        self.returns: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self._report()

    def _on_rollout_end(self) -> None:
        self.sampled_at = time.perf_counter()
        episodes: Any = self.model.ep_info_buffer
        self.returns = [episode["r"] for episode in episodes]
        episodes.clear()

    def _on_training_end(self) -> None:
        self._report()

    def _report(self) -> None:
        if self.sampled_at is not None:
            self.reporter.batch(self.sampled_at, self.returns)


def build(settings: Settings) -> Any:
    """Return the algorithm with its environments."""
    name = settings.options.get("vec_env", "dummy")
    env = make_vec_env(
        settings.env,
        settings.B,
        seed=settings.seed,
        vec_env_cls=VEC_ENVS[name],
        # By default, every process would import torch anew, which takes half a minute in all.
        vec_env_kwargs={"start_method": "fork"} if name == "subproc" else None,
    )
    if settings.normalize:
        env = VecNormalize(env, gamma=settings.discount)
    sizes = list(settings.hidden_sizes)
    return PPO(
        "MlpPolicy",
        env,
        # What is left is counted after the batch here, before it by the others.
        learning_rate=lambda left: settings.learning_rate * (left + 1 / settings.n_batches),
        n_steps=settings.T,
        batch_size=settings.batch_size // settings.minibatches,
        n_epochs=settings.epochs,
        gamma=settings.discount,
        gae_lambda=settings.gae_lambda,
        clip_range=settings.ratio_clip,
        ent_coef=settings.entropy_loss_coeff,
        # The error is not halved here.
        vf_coef=settings.value_loss_coeff / 2,
        max_grad_norm=settings.clip_grad_norm,
        # Episodes of one batch are never dropped before they are reported.
        stats_window_size=settings.batch_size,
        policy_kwargs={
            "net_arch": {"pi": sizes, "vf": sizes},
            "log_std_init": settings.initial_log_std,
        },
        seed=settings.seed,
        device="cpu",
    )


def main(settings: Settings) -> None:
    """Train and report."""
    torch.set_num_threads(settings.torch_threads)
    reporter = Reporter()
    model = build(settings)
    reporter.ready(
        torch=torch.__version__,
        gymnasium=gymnasium.__version__,
        stable_baselines3=stable_baselines3.__version__,
    )
    # No log is written: what it would cost is not the question.
    model.learn(settings.n_batches * settings.batch_size, Report(reporter), log_interval=10**9)
    model.get_env().close()
    reporter.end()


if __name__ == "__main__":
    main(Settings.from_json(sys.argv[1]))
