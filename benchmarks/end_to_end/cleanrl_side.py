"""CleanRL's published PPO script, unchanged and instrumented from outside.

It is a script without functions to call, for an old gym on Python 3.10. So what it uses is replaced by
versions that count: the optimiser, whose last step of a batch ends the learning, and the vector of
environments, whose last step of a batch ends the sampling.
"""

from __future__ import annotations

import importlib.metadata
import os
import runpy
import sys
import tempfile
import time
from typing import Any

import gym  # type: ignore[import-not-found]
import torch

from benchmarks.end_to_end.settings import Reporter, Settings


class Watch:
    """Count steps and updates, and report each batch.

    Args:
        steps, updates: of the environments' vector and of the optimiser, per batch.
    """

    def __init__(self, reporter: Reporter, steps: int, updates: int) -> None:
        self.reporter = reporter
        self.steps, self.updates = steps, updates
        self.n_steps = self.n_updates = 0
        self.sampled_at = 0.0
        self.returns: list[float] = []

    def stepped(self, infos: Any) -> None:
        """Take in the infos of one step of all environments."""
        self.returns += [info["episode"]["r"] for info in infos if "episode" in info]
        self.n_steps += 1
        if self.n_steps % self.steps == 0:
            self.sampled_at = time.perf_counter()

    def updated(self) -> None:
        """Take in one update."""
        self.n_updates += 1
        if self.n_updates % self.updates == 0:
            self.reporter.batch(self.sampled_at, self.returns)
            self.returns = []


def install(watch: Watch) -> None:
    """Let the script's optimiser and environments tell `watch` what they do."""

    class Adam(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            result = super().step(closure)
            watch.updated()
            return result

    class SyncVectorEnv(gym.vector.SyncVectorEnv):  # type: ignore[misc]
        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            watch.stepped(result[3])
            return result

    torch.optim.Adam = Adam  # type: ignore[misc]
    gym.vector.SyncVectorEnv = SyncVectorEnv


def arguments(settings: Settings) -> list[str]:
    """Return the script's options; its networks have two layers of 64 units always."""
    values = {
        "seed": settings.seed,
        "env-id": settings.env,
        "total-timesteps": settings.n_batches * settings.batch_size,
        "learning-rate": settings.learning_rate,
        "num-envs": settings.B,
        "num-steps": settings.T,
        "anneal-lr": True,
        "gamma": settings.discount,
        "gae-lambda": settings.gae_lambda,
        "num-minibatches": settings.minibatches,
        "update-epochs": settings.epochs,
        "norm-adv": True,
        "clip-coef": settings.ratio_clip,
        "clip-vloss": False,
        "ent-coef": settings.entropy_loss_coeff,
        "vf-coef": settings.value_loss_coeff,
        "max-grad-norm": settings.clip_grad_norm,
        "cuda": False,
    }
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def main(settings: Settings) -> None:
    """Run the script in a folder of its own, as it writes TensorBoard files, and report."""
    torch.set_num_threads(settings.torch_threads)
    reporter = Reporter()
    install(Watch(reporter, settings.T, settings.epochs * settings.minibatches))
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        os.chdir(folder)
        sys.argv[1:] = arguments(settings)
        sys.stdout = nowhere  # it prints a line per episode
        reporter.ready(
            torch=torch.__version__,
            gym=gym.__version__,
            cleanrl=importlib.metadata.version("cleanrl"),
        )
        runpy.run_module("cleanrl.ppo", run_name="__main__", alter_sys=True)
        os.chdir("/")
    reporter.end()


if __name__ == "__main__":
    main(Settings.from_json(sys.argv[1]))
