"""parllel's cages as a gymnasium VectorEnv and as a Stable-Baselines3 VecEnv.

`VecEnv` needs the extra `sb3`. Importing this package registers gymnasium's environments, as
`parllel/Ant-v5`, and the compiled ones, such as `parllel/CartPole-v1`, for `gymnasium.make_vec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.lazy_names import lazy_names as _lazy_names
from parllel.vector.registration import make_vec
from parllel.vector.registration import register_all as _register_all
from parllel.vector.vector_env import VectorEnv

if _TYPE_CHECKING:
    from parllel.vector.vec_env import VecEnv

__all__ = ["VecEnv", "VectorEnv", "make_vec"]

__getattr__, __dir__ = _lazy_names(__name__, {"vec_env": ("VecEnv",)}, "sb3", ["stable_baselines3"])
_register_all()
