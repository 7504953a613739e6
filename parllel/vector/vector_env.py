"""parllel's cages as a gymnasium VectorEnv.

    step_async(actions)    writes the action row, starts the cage's row       workers step
    step_wait()            waits, steps the main process's own share          workers step
                           returns observations, rewards, flags and infos

One command starts the environments of all workers, and observations are written where they are returned from.
Only infos are sent, if there are any.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    CustomSpaceError,
    NoAsyncCallError,
    ResetNeeded,
)
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymVectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from parllel.cages.cage_interface import CageInterface
from parllel.cages.spaces import example_of
from parllel.cages.stepping.pending_rows import PendingRows
from parllel.types import Tree
from parllel.vector.descriptions import describe
from parllel.vector.placement import make_cage
from parllel.vector.stacked_infos import InfoStacker
from parllel.vector.step_rows import StepRows, copy_tree

Results = tuple[Tree, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]


class VectorEnv(GymVectorEnv[Any, Any, Any]):
    """Environments in worker processes, in this process, or in both, with gymnasium's interface.

    The numbers are those of a SyncVectorEnv with the same seeds, wherever the environments are.

    Args:
        envs: functions that make the environments; or a cage of one group that was made with
            `infos=True`, and with `reset_automatically=True` just for the mode SAME_STEP.
        autoreset_mode: when an ended environment is reset: NEXT_STEP, SAME_STEP or DISABLED.
        copy: return copies of observations. Otherwise they are views, valid until the step after the next.
        parallel: whether worker processes may step environments. Their number is chosen from a short
            measurement, for which the first environment is made once more, and closed again.
        n_workers: number of worker processes; 0 steps all environments in this process.
        n_main: number of environments that this process steps, with workers; None for an equal share if there
            are more cores than workers.
        timeout_s: time limit for a step or reset of the workers; then they are killed and
            WorkerTimeoutError is raised.
        start_method: "fork", "forkserver" or "spawn"; None for forkserver where it exists.

    An exception of an environment is raised with its type, by `step_async` or `step_wait`. If a worker dies,
    WorkerDiedError is raised.

    Raises:
        gymnasium.error.CustomSpaceError: for spaces whose elements have no fixed size, such as Text.
        ValueError: for arguments that do not fit.
        UnequalSpacesError: a ValueError and RuntimeError, for environments with different spaces.
    """

    def __init__(
        self,
        envs: Sequence[Callable[[], Any]] | CageInterface,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        parallel: bool = True,
        n_workers: int | None = None,
        n_main: int | None = None,
        timeout_s: float = 60.0,
        start_method: str | None = None,
    ) -> None:
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.copy = copy
        self._next_step = self.autoreset_mode == AutoresetMode.NEXT_STEP
        self._disabled = self.autoreset_mode == AutoresetMode.DISABLED
        same_step = self.autoreset_mode == AutoresetMode.SAME_STEP
        if isinstance(envs, CageInterface):
            if envs.reset_automatically != same_step or len(envs.groups) != 1:
                raise ValueError(
                    f"VectorEnv: envs: expected a cage of one group with reset_automatically={same_step} for "
                    f"{self.autoreset_mode}, got {len(envs.groups)} groups and "
                    f"reset_automatically={envs.reset_automatically}"
                )
            self.cage = envs
        else:
            self.cage = make_cage(
                envs,
                reset_automatically=same_step,
                parallel=parallel,
                n_workers=n_workers,
                n_main=n_main,
                timeout_s=timeout_s,
                start_method=start_method,
                name="VectorEnv",
            )
        try:
            self._describe()
            self._rows = StepRows(self.cage)
            self._stacker = InfoStacker(self.num_envs)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self.cage.close()
            raise
        self._pending: str | None = None
        self._begun = False

    def _describe(self) -> None:
        of_one = self.cage.spaces
        for space in (of_one.observation, of_one.action):
            try:
                example_of(space)
            except TypeError as error:
                raise CustomSpaceError(f"VectorEnv: {error}") from error
        self.num_envs = self.cage.n
        found = describe(self.cage)
        self.single_observation_space = found.observation_space
        self.single_action_space = found.action_space
        self.observation_space = batch_space(found.observation_space, self.num_envs)
        self.action_space = batch_space(found.action_space, self.num_envs)
        self.metadata, self.render_mode = dict(found.metadata), found.render_mode
        self._reachable = found.reachable
        self.metadata["autoreset_mode"] = self.autoreset_mode

    # ------------------------------------------------------------------ resets

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Tree, dict[str, Any]]:
        """Reset all environments, or those of `options["reset_mask"]`.

        Args:
            seed: a seed per environment; an int stands for `seed`, `seed + 1`, ...
            options: passed to each environment, without the mask, an array of bool [num_envs].

        Returns the observations of all environments, and the infos of those that were reset.
        """
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start a reset; `reset_wait` returns its results."""
        self._check_idle("reset_async")
        n = self.num_envs
        seeds: list[int | None] | None = None
        if isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + i for i in range(n)]
        elif seed is not None:
            seeds = list(seed)
            if len(seeds) != n:
                raise ValueError(
                    f"seed: expected an int, or a list of num_envs={n} seeds, got {len(seeds)}"
                )
        which: NDArray[np.bool_] | None = None
        if options is not None and "reset_mask" in options:
            options = dict(options)  # the caller's own dict keeps its mask
            which = check_mask(options.pop("reset_mask"), n)
        if which is not None and not self._begun:
            raise ResetNeeded(
                "reset: expected a reset of all environments before one with a reset_mask"
            )
        self._rows.start_reset(which=which, seeds=seeds, options=options)
        self._pending = "reset"

    def reset_wait(self, timeout: float | None = None) -> tuple[Tree, dict[str, Any]]:
        """Wait for a reset, for `timeout` seconds at most. Raises multiprocessing.TimeoutError."""
        self._await("reset", timeout)
        self._rows.finish_reset()
        self._begun = True
        infos = self._stacker.stack(self.cage.collect_infos())
        observation = self._rows.observation
        return copy_tree(observation) if self.copy else observation, infos

    # ------------------------------------------------------------------ steps

    def step(self, actions: Any) -> Results:
        """Step all environments; see the class for what happens at the end of an episode."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Start a step; `step_wait` returns its results.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, and in the mode DISABLED if an
                environment has ended and was not reset.
            ValueError: if the shape of the actions does not fit.
        """
        # One condition in the usual case; which error to raise is decided only if there is one.
        if self._pending is not None or self.closed or not self._begun:
            self._check_idle("step_async")
            raise ResetNeeded("step: the environments were not reset; call reset() first")
        if self._disabled and self.cage.needs_reset.any():
            ended = np.flatnonzero(self.cage.needs_reset).tolist()
            raise ResetNeeded(
                f"step: environments {ended} have ended; reset them first, with "
                'reset(options={"reset_mask": terminations | truncations})'
            )
        self._rows.start(actions, or_reset=self._next_step)
        self._pending = "step"

    def step_wait(self, timeout: float | None = None) -> Results:
        """Wait for a step, for `timeout` seconds at most, and return its results.

        Raises:
            multiprocessing.TimeoutError: after the time-out; the step can still be awaited.
            gymnasium.error.NoAsyncCallError: if no step was started.
        """
        self._await("step", timeout)
        rows = self._rows
        rows.finish()
        infos = self._stacker.stack(self.cage.collect_infos())
        observation = rows.observation
        return (
            copy_tree(observation) if self.copy else observation,
            rows.reward.copy(),
            rows.terminated.copy(),
            rows.truncated.copy(),
            infos,
        )

    # ------------------------------------------------------------------ order of calls

    def _check_idle(self, method: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{method}: the vector environment was closed")
        if self._pending is not None:
            raise AlreadyPendingCallError(
                f"{method}: a {self._pending} was started; call {self._pending}_wait() first",
                self._pending,
            )

    def _await(self, kind: str, timeout: float | None) -> None:
        if self._pending != kind or self.closed:
            if self.closed:
                self._check_idle(f"{kind}_wait")
            raise NoAsyncCallError(f"{kind}_wait: expected {kind}_async() to be called first", kind)
        if timeout is not None and not self._done_within(timeout):
            # Still pending, so that it can be awaited again.
            raise multiprocessing.TimeoutError(f"{kind}_wait: not finished after {timeout} s")
        # Before the end of the wait, which may raise: nothing is pending then.
        self._pending = None

    def _done_within(self, timeout: float) -> bool:
        rows: PendingRows[int] = PendingRows()
        rows.add(0, self.cage)
        return bool(rows.wait(timeout))

    # ------------------------------------------------------------------ the environments themselves

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or return an attribute; found through the wrappers.

        Raises:
            ValueError: for reset, step and close, which the vector environment must know of.
        """
        self._check_idle("call")
        _check_name(name, "call")
        if not self._reachable:
            return tuple(self.cage.env_method(name, *args, **kwargs))
        arguments = [(name, args, kwargs)] * self.num_envs
        return tuple(self.cage.env_apply(_call, arguments=arguments))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each environment, found through the wrappers."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute in each environment: a list or tuple has one value each, others are shared."""
        self._check_idle("set_attr")
        _check_name(name, "set_attr")
        n = self.num_envs
        each = list(values) if isinstance(values, (list, tuple)) else [values] * n
        if len(each) != n:
            raise ValueError(
                f"set_attr: {name}: expected a list or tuple of num_envs={n} values, got {len(each)}"
            )
        if not self._reachable:
            self.cage.set_attr(name, each)
            return
        self.cage.env_apply(_set, arguments=[(name, value) for value in each])

    def render(self) -> tuple[Any, ...]:
        """Return what each environment renders."""
        return self.call("render")

    @property  # type: ignore[misc]  # as in SyncVectorEnv
    def np_random(self) -> Any:
        """The random generators of the environments; copies of those in workers."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> Any:
        """The seeds of the environments' generators."""
        return self.get_attr("np_random_seed")

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the environments and end the workers.

        timeout: seconds to wait for a step or reset in progress; None waits as long as the cage does.
        terminate: whether not to wait for it.
        """
        if self._pending is not None and not terminate:
            # Its results are lost, but the environments of idle workers can be closed in order.
            with suppress(Exception):
                self._await(self._pending, timeout)
                self._rows.finish()
        self._pending = None
        self._rows.close()

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        """Close the workers, unless that was done."""
        if not self.closed and hasattr(self, "_rows"):
            with suppress(Exception):
                self.close(terminate=True)


def check_mask(mask: Any, n: int) -> NDArray[np.bool_]:
    """Check a reset mask as gymnasium's own vector environments do. Raises TypeError or ValueError."""
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"options['reset_mask']: expected a numpy array, got {type(mask)}")
    if mask.shape != (n,):
        raise ValueError(f"options['reset_mask']: expected shape ({n},), got {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"options['reset_mask']: expected dtype bool, got {mask.dtype}")
    if not mask.any():
        raise ValueError("options['reset_mask']: expected at least one True, got none")
    return mask


def _check_name(name: str, method: str) -> None:
    if name in ("reset", "step", "close"):
        raise ValueError(
            f"{method}: {name}: expected another name; use the vector environment's own {name}"
        )


def _call(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    value = env.get_wrapper_attr(name)
    return value(*args, **kwargs) if callable(value) else value


def _set(env: Any, name: str, value: Any) -> None:
    env.set_wrapper_attr(name, value)
