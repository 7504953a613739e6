"""parllel's cages as a gymnasium VectorEnv and as a Stable-Baselines3 VecEnv.

`VecEnv` needs the extra `sb3`. Importing this package registers `parllel/CartPole-v1` and gymnasium's other
environments for `gymnasium.make_vec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.lazy_names import lazy_names as _lazy_names
from parllel.vector.registration import make_vec
from parllel.vector.registration import register_gymnasium as _register_gymnasium
from parllel.vector.vector_env import VectorEnv

if _TYPE_CHECKING:
    from parllel.vector.vec_env import VecEnv

__all__ = ["VecEnv", "VectorEnv", "make_vec"]

__getattr__, __dir__ = _lazy_names(__name__, {"vec_env": ("VecEnv",)}, "sb3", ["stable_baselines3"])
_register_gymnasium()
