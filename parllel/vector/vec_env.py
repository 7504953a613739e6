"""parllel's cages as a Stable-Baselines3 VecEnv.

    make_vec_env("CartPole-v1", n_envs=16, vec_env_cls=VecEnv)

Numbers, infos and attributes are those of a DummyVecEnv with the same seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv as BaseVecEnv
from stable_baselines3.common.vec_env.dummy_vec_env import DummyVecEnv

from parllel.cages.native.native_trees import stacked
from parllel.cages.stepping.info_table import InfoTable, JoinedInfos
from parllel.errors import ClosedError, WrongStateError
from parllel.types import Tree
from parllel.vector.descriptions import describe
from parllel.vector.placement import make_cage
from parllel.vector.step_rows import StepRows, copy_tree

Indices = int | Iterable[int] | None
_PLAIN = (bool, int, float, str, type(None), np.bool_, np.number)


class VecEnv(BaseVecEnv):
    """Environments in worker processes, in this process, or in both, with Stable-Baselines3's interface.

    Args:
        env_fns: functions that make the environments.
        parallel, n_workers, n_main, timeout_s, start_method: as for `VectorEnv`. Pass them to `make_vec_env`
            in `vec_env_kwargs`.

    An environment is reset in the step that ends its episode. The last observation is in the info, as
    "terminal_observation".

    Raises:
        TypeError: for observations or actions of no fixed size.
        ValueError: for arguments that do not fit, or environments with different spaces.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        *,
        parallel: bool = True,
        n_workers: int | None = None,
        n_main: int | None = None,
        timeout_s: float = 60.0,
        start_method: str | None = None,
    ) -> None:
        self.cage = make_cage(
            [partial(_patched, make) for make in env_fns],
            reset_automatically=True,
            parallel=parallel,
            n_workers=n_workers,
            n_main=n_main,
            timeout_s=timeout_s,
            start_method=start_method,
            name="VecEnv",
        )
        self._closed = self._stepping = self._begun = False
        try:
            self._rows = StepRows(self.cage)
            found = describe(self.cage)
            super().__init__(len(env_fns), found.observation_space, found.action_space)
            self.metadata = found.metadata
            self._nested_actions = isinstance(
                found.action_space, (gym.spaces.Dict, gym.spaces.Tuple)
            )
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self.cage.close()
            raise

    # ------------------------------------------------------------------ resets and steps

    def reset(self) -> Tree:
        """Reset all environments with the seeds and options set before; return their observations."""
        self._finish()
        options = [one or None for one in self._options]
        if all(one == options[0] for one in options):
            self._reset(None, options[0])
        else:
            # A cage passes the same options to all environments of one reset.
            for i, one in enumerate(options):
                which = np.zeros(self.num_envs, bool)
                which[i] = True
                self._reset(which, one)
        self._begun = True
        self._reset_seeds()
        self._reset_options()
        return copy_tree(self._rows.observation)

    def _reset(self, which: NDArray[np.bool_] | None, options: dict[str, Any] | None) -> None:
        self._rows.start_reset(which=which, seeds=self._seeds, options=options)
        self._rows.finish_reset()
        infos = list(self.cage.collect_infos().infos)
        for i in range(self.num_envs) if which is None else np.flatnonzero(which).tolist():
            self.reset_infos[i] = infos[i]

    def step_async(self, actions: NDArray[Any]) -> None:
        """Start a step; `step_wait` returns its results.

        Raises:
            WrongStateError: if the last step was not awaited, or before the first reset.
            ValueError: if the shape of the actions does not fit.
        """
        if self._stepping or self._closed or not self._begun:
            self._check_open()
            doing = "the last step was not awaited" if self._stepping else "stepped before a reset"
            raise WrongStateError(f"VecEnv: step_async: {doing}")
        if self._nested_actions:
            # A list with the action of each environment, as DummyVecEnv takes it.
            actions = stacked(self.action_space, list(actions))
        self._rows.start(actions)
        self._stepping = True

    def step_wait(
        self,
    ) -> tuple[Tree, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Wait for a step; return observations, rewards, dones and infos."""
        if not self._stepping:
            self._check_open()
            raise WrongStateError("VecEnv: step_wait: no step was started; call step_async first")
        self._stepping = False
        rows = self._rows
        rows.finish()
        kept, finals = self.cage.collect_infos()
        infos: list[dict[str, Any]] = []
        for part in kept.parts if isinstance(kept, JoinedInfos) else [kept]:
            if isinstance(part, InfoTable):
                infos += part
            else:
                # Copies, as an environment of this process may use the same dict again.
                infos += [_copied(info) if info else {} for info in part]
        for i in finals:
            observation, info = finals[i]
            self.reset_infos[i] = infos[i]
            infos[i] = {**_copied(info), "terminal_observation": observation}
        done = rows.terminated | rows.truncated
        cut_off = (rows.truncated & ~rows.terminated).tolist()
        for info, cut in zip(infos, cut_off, strict=True):
            info["TimeLimit.truncated"] = cut
        return copy_tree(rows.observation), rows.reward.astype(np.float32), done, infos

    def _finish(self) -> None:
        """Drop the results of a step in progress."""
        self._check_open()
        if self._stepping:
            self._stepping = False
            self._rows.finish()
            self.cage.collect_infos()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("VecEnv: used after close()")

    # ------------------------------------------------------------------ the environments themselves

    def _apply(self, function: Callable[..., Any], indices: Indices, *arguments: Any) -> list[Any]:
        self._check_open()
        which = list(self._get_indices(indices))
        # Counted from the end, as in lists.
        which = [int(i) + self.num_envs * (int(i) < 0) for i in which]
        if len(set(which)) < len(which):  # an environment is called as often as it is named
            return [self._apply(function, i, *arguments)[0] for i in which]
        return self.cage.env_apply(function, which=which, arguments=[arguments] * len(which))

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of each environment, found through its wrappers."""
        return self._apply(_get, indices, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute in each environment, on the wrapper that has it."""
        self._apply(_set, indices, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each environment, found through its wrappers."""
        return self._apply(_call, indices, method_name, method_args, method_kwargs)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Return for each environment whether it is wrapped with a class."""
        return self._apply(_is_wrapped, indices, wrapper_class)

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """Return the picture that each environment renders."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"get_images: expected render_mode='rgb_array', got {self.render_mode!r}: no images",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self.env_method("render")

    def close(self) -> None:
        """Close the environments and end the workers. Idempotent."""
        if not self._closed:
            self._closed = True
            if self._stepping:
                # The environments of idle workers can be closed in order.
                with suppress(Exception):
                    self._rows.finish()
            self._rows.close()

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        """End the workers, unless that was done."""
        if not getattr(self, "_closed", True) and hasattr(self, "_rows"):
            with suppress(Exception):
                self._rows.close()


def _copied(info: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, _PLAIN) else deepcopy(value) for key, value in info.items()
    }


def _patched(make: Callable[[], Any]) -> Any:
    env = make()
    if isinstance(env, gym.Env):
        return env
    # Converts environments of old versions of Gym, and refuses other objects.
    return DummyVecEnv([lambda: env]).envs[0]


def _get(env: Any, name: str) -> Any:
    return env.get_wrapper_attr(name)


def _set(env: Any, name: str, value: Any) -> None:
    env.set_wrapper_attr(name, value)


def _call(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return env.get_wrapper_attr(name)(*args, **kwargs)


def _is_wrapped(env: Any, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]]) -> bool:
    from stable_baselines3.common.env_util import is_wrapped

    return is_wrapped(env, wrapper_class)
