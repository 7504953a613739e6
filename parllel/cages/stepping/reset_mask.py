"""Vector environments that reset some of their environments when asked, and one that is taught to.

gymnasium's convention is `reset(options={"reset_mask": mask})`. CartPoleVectorEnv ignores the mask and resets
all, without a word.
"""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

_ASYNC = "gymnasium.vector.async_vector_env.AsyncVectorEnv"
# By name, so that no library is imported for the sake of knowing its classes.
_HONOURING = {
    "gymnasium.vector.sync_vector_env.SyncVectorEnv",
    _ASYNC,
    "ale_py.vector_env.AtariVectorEnv",
    "parllel.distributed.messaging.vector_face.VectorFace",
}
_CARTPOLE = "gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv"


def _name_of(core: Any) -> str:
    return f"{type(core).__module__}.{type(core).__qualname__}"


def honours_reset_mask(core: Any) -> bool:
    """Return whether an environment, without its wrappers, is known to reset those of a mask alone."""
    # EnvPool makes a class for each game; all of them share this attribute.
    return _name_of(core) in {*_HONOURING, _CARTPOLE} or hasattr(core, "all_env_ids")


def forgets_resets(core: Any) -> bool:
    """Return whether an environment that resets in the next step does so although it was reset meanwhile."""
    # As of gymnasium 1.4: its workers note a reset only where they write to shared memory.
    return _name_of(core) == _ASYNC and not core.shared_memory


def teach_reset_mask(core: Any) -> None:
    """Let a CartPoleVectorEnv reset some of its environments."""
    if _name_of(core) == _CARTPOLE:
        # On the object, so that resets reach it through wrappers as before.
        core.reset = MethodType(partial(_reset_carts, core.reset), core)


def _reset_carts(
    reset_all: Any, core: Any, *, seed: int | None = None, options: dict[str, Any] | None = None
) -> Any:
    mask = None if options is None else options.get("reset_mask")
    if mask is None:
        return reset_all(seed=seed, options=options)
    if seed is not None:
        raise ValueError(
            "CartPoleVectorEnv: seed: expected None with a reset_mask, as all share one"
        )
    # What the next step would do for these, drawn in the same way from the same generator.
    core.state[:, mask] = core.np_random.uniform(
        low=core.low, high=core.high, size=(4, int(mask.sum()))
    )
    core.steps[mask] = 0
    core.prev_done[mask] = False
    return core.state.T.astype("float32"), {}
