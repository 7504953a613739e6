"""Do our SAC and that of Stable-Baselines3 learn alike on HalfCheetah-v5?

    python -m benchmarks.end_to_end.sac [--seeds N] [--steps N] [--timeout SECONDS] [--output FILE]

Trains both with each seed, on one thread; see `curves`. A training takes five to ten minutes. How fast the
two are is measured by `make bench-off-policy`.
"""

from __future__ import annotations

from benchmarks.end_to_end.curves import CurveStudy
from benchmarks.end_to_end.settings import SacSettings
from benchmarks.end_to_end.sides import Side, Variant

ONE_THREAD = (Variant("1 thread", 1, {}),)
OURS = Side("ours", "parllel", "sac_ours", None, ONE_THREAD)
SB3 = Side("sb3", "Stable-Baselines3", "sac_sb3", "peers", ONE_THREAD)
STUDY = CurveStudy(
    "sac_curves",
    "SAC",
    OURS,
    SB3,
    SacSettings(),
    lambda settings: f", the first {settings['learning_starts']:,} with random actions",
)


if __name__ == "__main__":
    STUDY.run(__spec__.name)
