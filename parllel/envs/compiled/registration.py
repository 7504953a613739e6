"""The ids of the compiled environments."""

from __future__ import annotations

import gymnasium as gym

# Modules by id: they are imported, and their functions compiled, when an environment is made.
_CLASSIC = (
    "CartPole-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
)
_GRIDS = (
    *(f"Empty-{n}x{n}-v0" for n in (5, 6, 8, 16)),
    *(f"Empty-Random-{n}x{n}-v0" for n in (5, 6)),
    "FourRooms-v0",
    *(f"DoorKey-{n}x{n}-v0" for n in (5, 6, 8, 16)),
)
_MODULES = {
    **dict.fromkeys(_CLASSIC, "classic_control"),
    **dict.fromkeys(_GRIDS, "grid_worlds"),
    "Breakout-v0": "breakout",
}


def register_compiled() -> None:
    """Register "parllel/CartPole-v1" and the other compiled environments for `gymnasium.make`.

    They are made without wrappers, because they check actions and limit episodes themselves, and because
    cages step whole rows only of environments without wrappers.
    """
    for name, module in _MODULES.items():
        env_id = f"parllel/{name}"
        if env_id not in gym.registry:
            class_name = name.rpartition("-v")[0].replace("-", "")
            gym.register(
                env_id,
                entry_point=f"parllel.envs.compiled.{module}:{class_name}",
                order_enforce=False,
                disable_env_checker=True,
            )
