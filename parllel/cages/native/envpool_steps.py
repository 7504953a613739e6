"""Direct calls into EnvPool's compiled part, without the Python of its own `step`.

    EnvPool's step     looks up names and rebuilds trees in each call: some 10 us, a quarter of a step of
                       128 CartPoles
    here               the same two compiled calls, with names and positions looked up once

Used for environments whose compiled interface is known, see `envpool_steps`; all others are stepped by their
own methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.types import Tree

_ACTIONS = ["env_id", "players.env_id", "action"]
_NEEDED = ("done", "reward", "trunc", "obs", "elapsed_step")


class EnvPoolSteps:
    """Step and reset one EnvPool.

    Args:
        env: the unwrapped EnvPool, with one player per environment and observations in a single
            array.
    """

    def __init__(self, env: Any) -> None:
        self._send, self._reset, self._recv = env._send, env._reset, env._recv
        # At most one request is under way: `_recv` returns the next answer, to whatever request.
        self._resetting = False  # whether a reset was sent and its answer not yet received
        self._last_reset: Any = None
        self._dtype = env._spec._action_spec[-1][0]
        self._ids = env.all_env_ids
        keys = list(env._state_keys)
        self._obs, self._reward, self._done, self._trunc, self._elapsed = (
            keys.index(name) for name in ("obs", "reward", "done", "trunc", "elapsed_step")
        )
        # Not the infos by player: there is one, whose number is that of the environment.
        self._infos = [
            (key[5:], at)
            for at, key in enumerate(keys)
            if key.startswith("info:") and "." not in key
        ]

    def step(self, actions: NDArray[Any]) -> tuple[Any, ...]:
        """Step all environments; returns the five values of EnvPool's `step`."""
        self.forget_reset()
        # `_recv` waits without the GIL, as in EnvPool's own step.
        self._send([self._ids, self._ids, actions.astype(self._dtype, order="C")])
        values = self._recv()
        done, truncated = values[self._done], values[self._trunc]
        info = {name: values[at] for name, at in self._infos}
        info["elapsed_step"] = values[self._elapsed]
        # EnvPool's `done` includes truncations.
        return values[self._obs], values[self._reward], done & ~truncated, truncated, info

    def start_reset(self, which: NDArray[np.intp]) -> None:
        """Start resetting environments in EnvPool's threads. Call `reset` with the same arguments next."""
        self._reset(which.astype(np.int32))
        # After the call: if it raised there is no answer, and a wait for one would hang.
        self._resetting = True

    def reset(self, which: NDArray[np.intp]) -> Tree:
        """Reset these environments, or complete a reset that was started; return only their observations."""
        if not self._resetting:
            self.start_reset(which)
        self._resetting = False
        self._last_reset = values = self._recv()
        return values[self._obs]

    def reset_info(self, which: NDArray[np.intp]) -> dict[str, Any]:
        """Return the info of the last reset, of these environments, stacked for all with `_key` masks."""
        n = len(self._ids)
        has = np.zeros(n, bool)
        has[which] = True
        info: dict[str, Any] = {}
        for name, at in [*self._infos, ("elapsed_step", self._elapsed)]:
            values = self._last_reset[at]
            whole = np.zeros((n, *values.shape[1:]), values.dtype)
            whole[which] = values
            info[name], info[f"_{name}"] = whole, has
        return info

    def forget_reset(self) -> None:
        """Discard the result of a reset that was started but, because of an error, never received."""
        if self._resetting:
            # Before the wait, which ends only with the answer: compiled code delays
            # Ctrl-C until it returns.
            self._resetting = False
            self._recv()


def envpool_steps(env: Any) -> EnvPoolSteps | None:
    """Return an EnvPoolSteps, or None for an environment of another library or with another interface."""
    calls = ("_send", "_recv", "_reset", "_spec", "_state_keys", "_action_keys", "all_env_ids")
    if not all(hasattr(env, name) for name in calls):
        return None
    keys = list(env._state_keys)
    plain = (
        list(env._action_keys) == _ACTIONS
        and all(name in keys for name in _NEEDED)
        and not any(key.startswith(("obs:", "obs.")) for key in keys)
        and env.config.get("max_num_players", 1) == 1
        and env._spec._action_spec[-1][1][0] == -1
    )
    return EnvPoolSteps(env) if plain else None
