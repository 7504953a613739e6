"""Shortcuts for build scripts, to use as they are or to copy and adapt."""

from parllel_patterns.cages import build_cages
from parllel_patterns.curve_file import CurveFile
from parllel_patterns.logging import build_logger
from parllel_patterns.main import main, main_for_each
from parllel_patterns.parameters import (
    DQN_DEFAULTS,
    PPO_DEFAULTS,
    R2D1_DEFAULTS,
    SAC_DEFAULTS,
    TD3_DEFAULTS,
    DqnParameters,
    PpoParameters,
    R2d1Parameters,
    SacParameters,
    Td3Parameters,
)
from parllel_patterns.samplers import build_eval_sampler, build_rollout_sampler, build_sampler
from parllel_patterns.samples import allocate_eval_samples, allocate_samples, default_storage
from parllel_patterns.training_plan import TrainingPlan, plan_training
from parllel_patterns.tuned import (
    TUNED,
    TunedConfig,
    TunedDqn,
    TunedPpo,
    TunedSac,
    make_tuned_env,
    tuned,
)

__all__ = [
    "DQN_DEFAULTS",
    "PPO_DEFAULTS",
    "R2D1_DEFAULTS",
    "SAC_DEFAULTS",
    "TD3_DEFAULTS",
    "TUNED",
    "CurveFile",
    "DqnParameters",
    "PpoParameters",
    "R2d1Parameters",
    "SacParameters",
    "Td3Parameters",
    "TrainingPlan",
    "TunedConfig",
    "TunedDqn",
    "TunedPpo",
    "TunedSac",
    "allocate_eval_samples",
    "allocate_samples",
    "build_cages",
    "build_eval_sampler",
    "build_logger",
    "build_rollout_sampler",
    "build_sampler",
    "default_storage",
    "main",
    "main_for_each",
    "make_tuned_env",
    "plan_training",
    "tuned",
]
