"""The state of gymnasium's MuJoCo environments.

MuJoCo's own state (positions, velocities, the start of the solver) decides what the next step does, but not
all that environments read: some compare, before that step, body positions that the last one derived and that
a call of mj_forward would give anew, a little later in time. So every array of MjData that has a size fixed
by the model is saved too. Those of contacts and constraints have none; the next step makes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.envs.states.layer_state import AttributeState, NoStateError
from parllel.types import State

# What environments of gymnasium keep beside model and data. Pusher writes its goal into init_qpos.
_ATTRIBUTES = AttributeState(
    dict.fromkeys(("cylinder_pos", "goal", "goal_pos", "init_qpos", "init_qvel"), np.ndarray)
)


class MujocoState:
    """The state of a MujocoEnv. Its `model` is assumed to be unchanged since it was made."""

    def state(self, layer: Any) -> State:
        """Return the physics, the derived arrays, and the attributes of the environment."""
        import mujoco

        model, data = layer.model, layer.data
        _check(model)
        kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
        physics = np.empty(mujoco.mj_stateSize(model, kind))
        mujoco.mj_getState(model, data, physics, kind)
        # Copies: these are views of the memory that the next step writes.
        arrays = {name: array.copy() for name, array in _arrays(data).items()}
        return {"physics": physics, "data": arrays, "attributes": _ATTRIBUTES.state(layer)}

    def load_state(self, layer: Any, state: State) -> None:
        """Write a state returned by `state` into MjData and the environment."""
        import mujoco

        model, data = layer.model, layer.data
        kind = int(mujoco.mjtState.mjSTATE_INTEGRATION)
        physics, saved = state["physics"], state["data"]
        _check_array("physics", (mujoco.mj_stateSize(model, kind),), physics)
        arrays = _arrays(data)
        if set(saved) != set(arrays):
            raise ValueError(
                f"data: expected the arrays that this model has in MuJoCo {mujoco.__version__}; "
                f"missing or unknown: {sorted(set(saved) ^ set(arrays))}"
            )
        for name, array in arrays.items():
            _check_array(name, array.shape, saved[name])
        # Everything has been checked by now: MjData is never left half loaded.
        mujoco.mj_setState(model, data, physics, kind)
        for name, array in arrays.items():
            array[...] = saved[name]
        _ATTRIBUTES.load_state(layer, state["attributes"])


def _arrays(data: Any) -> dict[str, NDArray[np.float64]]:
    """Return views of the arrays of numbers in MjData whose size the model fixes.

    Integers are left out: they are indices, which MuJoCo would follow wherever a damaged file led, and each
    step makes them anew.
    """
    # Those lie in one buffer, which begins with qpos. Others are in an arena that each step clears, or
    # nowhere yet: then the attribute is memory that was never written.
    start = data.qpos.__array_interface__["data"][0]
    found = {}
    for name in dir(type(data)):
        array = None if name.startswith("_") else getattr(data, name)
        if isinstance(array, np.ndarray) and array.dtype == np.float64 and array.size:
            offset = array.__array_interface__["data"][0] - start
            if 0 <= offset < data.nbuffer:
                found[name] = array
    return found


def _check(model: Any) -> None:
    """Raise NoStateError for models whose state MuJoCo keeps in other places as well."""
    import mujoco

    if model.nplugin:
        raise NoStateError("its model has plugins, whose memory cannot be read")
    # MuJoCo has flexes since version 3, and sleeping bodies since a later one.
    if getattr(model, "nflex", 0):
        raise NoStateError("its model has flexes, whose state cannot be saved")
    sleep = getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)
    if model.opt.enableflags & int(sleep):
        raise NoStateError("its model allows bodies to sleep, and their state cannot be saved")


def _check_array(name: str, shape: tuple[int, ...], array: Any) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != shape:
        came = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else repr(array)
        raise ValueError(f"{name}: expected float64 {shape}, got {came}")
