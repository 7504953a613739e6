"""Stable-Baselines3's SAC, in a separate virtual environment."""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import stable_baselines3  # type: ignore[import-not-found]
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]
from stable_baselines3.common.env_util import make_vec_env  # type: ignore[import-not-found]

from benchmarks.end_to_end.settings import Reporter, SacSettings


class Report(BaseCallback):  # type: ignore[misc]
    """Report after every batch of steps; all of its time counts as learning."""

    def __init__(self, reporter: Reporter, settings: SacSettings) -> None:
        super().__init__()
        self.reporter = reporter
        self.batch_size = settings.batch_size
        self.n_reported = 0
        self.begun = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        # What was sampled before has been learnt from.
        if self.num_timesteps >= (self.n_reported + 1) * self.batch_size:
            episodes: Any = self.model.ep_info_buffer
            self.reporter.batch(self.begun, [episode["r"] for episode in episodes])
            episodes.clear()
            self.begun = time.perf_counter()
            self.n_reported += 1

    def _on_training_end(self) -> None:
        self._on_rollout_start()


def main(settings: SacSettings) -> None:
    """Train and report."""
    torch.set_num_threads(settings.torch_threads)
    reporter = Reporter()
    env = make_vec_env(settings.env, 1, seed=settings.seed)
    model = SAC(
        "MlpPolicy",
        env,
        learning_rate=settings.learning_rate,
        buffer_size=settings.n_steps,
        # It begins above this number, after the steps of an interval.
        learning_starts=settings.learning_starts,
        batch_size=settings.transitions,
        gamma=settings.discount,
        train_freq=settings.update_interval,
        gradient_steps=settings.update_interval,
        policy_kwargs={"net_arch": list(settings.hidden_sizes)},
        stats_window_size=settings.batch_size,
        seed=settings.seed,
        device="cpu",
    )
    reporter.ready(
        torch=torch.__version__,
        gymnasium=gymnasium.__version__,
        stable_baselines3=stable_baselines3.__version__,
    )
    n_steps = settings.n_batches * settings.batch_size
    model.learn(n_steps, Report(reporter, settings), log_interval=10**9)
    env.close()
    reporter.end()


if __name__ == "__main__":
    main(SacSettings.from_json(sys.argv[1]))
