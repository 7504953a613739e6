"""Environments written as small functions, which numba compiles.

Importing this package registers its environments for `gymnasium.make`: those below, as
`parllel/CartPole-v1` and so on, and the grid worlds `parllel/Empty-8x8-v0`, `parllel/Empty-Random-6x6-v0`,
`parllel/FourRooms-v0` and `parllel/DoorKey-8x8-v0`, in all of MiniGrid's sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.envs.compiled.compiled_env import CompiledEnv, compiled_env
from parllel.envs.compiled.registration import register_compiled as _register_compiled
from parllel.lazy_names import lazy_names as _lazy_names

if _TYPE_CHECKING:
    # Type checkers do not see what a class decorator returns.
    from parllel.envs.compiled.compiled_env import CompiledEnv as Acrobot
    from parllel.envs.compiled.compiled_env import CompiledEnv as Breakout
    from parllel.envs.compiled.compiled_env import CompiledEnv as CartPole
    from parllel.envs.compiled.compiled_env import CompiledEnv as MountainCar
    from parllel.envs.compiled.compiled_env import CompiledEnv as MountainCarContinuous
    from parllel.envs.compiled.compiled_env import CompiledEnv as Pendulum

__all__ = [
    "Acrobot",
    "Breakout",
    "CartPole",
    "CompiledEnv",
    "MountainCar",
    "MountainCarContinuous",
    "Pendulum",
    "compiled_env",
]

_CLASSIC = ("Acrobot", "CartPole", "MountainCar", "MountainCarContinuous", "Pendulum")
# Their modules import numba.
__getattr__, __dir__ = _lazy_names(
    __name__, {"breakout": ("Breakout",), "classic_control": _CLASSIC}
)
_register_compiled()
