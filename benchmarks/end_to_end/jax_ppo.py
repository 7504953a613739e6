"""Do PPO in JAX and PPO in PyTorch learn alike on CartPole-v1?

    python -m benchmarks.end_to_end.jax_ppo [--seeds N] [--steps N] [--timeout SECONDS] [--output FILE]

Trains both with each seed, on one thread; see `curves`. How fast the two are is measured by `bench_jax.py`.
"""

from __future__ import annotations

from benchmarks.end_to_end.curves import CurveStudy
from benchmarks.end_to_end.settings import Settings
from benchmarks.end_to_end.sides import Side, Variant

ONE_THREAD = (Variant("1 thread", 1, {}),)
IN_JAX = Side("jax", "PPO in JAX", "jax_ours", None, ONE_THREAD)
IN_TORCH = Side("torch", "PPO in PyTorch", "ours", None, ONE_THREAD)
STUDY = CurveStudy(
    "jax_curves",
    "PPO",
    IN_JAX,
    IN_TORCH,
    Settings(),
    lambda settings: f", {settings['B']} environments and {settings['T']} steps in a batch",
    n_last=100,
)


if __name__ == "__main__":
    STUDY.run(__spec__.name)
