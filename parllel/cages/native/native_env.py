"""One native vector environment for all autoreset modes and forms of seeds.

    mode       at the end of an episode the environment                     a reset in the same row is
    SameStep   has begun the next one; the last observation is in the info  already done
    NextStep   would ignore the next action, and begin then                 a partial reset, ahead of that
    Disabled   must be reset before it is stepped                           a partial reset

A partial reset is `reset(options={"reset_mask": mask})`, as gymnasium defines it. Without it, steps in which
some environments ignore their actions would be recorded. CartPoleVectorEnv silently ignores the mask and
resets all, so its `reset` is replaced here.

    attributes         belong to
    SyncVectorEnv      each of its environments, through their wrappers
    AsyncVectorEnv     the same, by its own `get_attr`, `set_attr` and `call`
    others             the vector environment: a value with n parts is split, any other shared by all
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.cages.native.envpool_steps import envpool_steps
from parllel.cages.native.native_trees import copied, pick, same_trees
from parllel.cages.spaces import Spaces, example_of
from parllel.cages.stepping.make_envs import BITS_31, VectorEnvFactory
from parllel.cages.stepping.stepper import set_env_attribute
from parllel.types import Tree

SAME_STEP, NEXT_STEP, DISABLED = "SameStep", "NextStep", "Disabled"
_MODES = (SAME_STEP, NEXT_STEP, DISABLED)
_SYNC = "gymnasium.vector.sync_vector_env.SyncVectorEnv"
_ASYNC = "gymnasium.vector.async_vector_env.AsyncVectorEnv"
_CARTPOLE = "gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv"
# Classes known to honour the mask. By name, so that no library is imported only to compare classes.
_HONOURING = {
    _SYNC,
    _ASYNC,
    _CARTPOLE,  # with our `reset`
    "ale_py.vector_env.AtariVectorEnv",
    "parllel.distributed.messaging.vectorized_kafka_env.KafkaVectorEnv",
}
# Errors that environments raise for a form of seeds that they do not accept.
_REFUSALS = (TypeError, ValueError, AttributeError, AssertionError, gym.error.Error)


class NativeEnv:
    """Uniform interface to vector environments of any kind.

    Args:
        factory: function that makes the vector environment.
        seeds: a 32-bit int for each environment, or None.
        name: name used in messages until the environment's own name is known.

    Attributes:
        env, core: the environment with and without its wrappers.
        shares_generator: whether all environments draw from one random generator.
        can_rest: whether single environments can be left out while the others are stepped.
        n: number of environments.
        reset_info: the stacked info of the last reset; {} if there is none.
        mode: one of SAME_STEP, NEXT_STEP, DISABLED.
        spaces: the spaces of each environment.

    Raises:
        TypeError, ValueError: if `factory` does not return a vector environment, or if the
            environment has the wrong size or an unknown mode.
    """

    def __init__(self, factory: VectorEnvFactory, seeds: Sequence[int | None], name: str) -> None:
        self.n = len(seeds)
        self._factory = factory
        self._reset_info: Any = {}
        self.env: Any = None
        self.core: Any = None
        self._make(seeds, name)

    def _make(self, seeds: Sequence[int | None], name: str) -> None:
        given = None if None in seeds else [seed & BITS_31 for seed in seeds if seed is not None]
        self.env = self._factory.make(self.n, given)
        try:
            # It exists from here on, perhaps with threads or processes, so a check that
            # refuses it must close it.
            self._look_at(name, given is not None)
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                self.close()
            raise

    def _look_at(self, name: str, seeded: bool) -> None:
        env = self.env
        for needed in ("reset", "step", "num_envs", "single_action_space"):
            if not hasattr(env, needed):
                raise TypeError(
                    f"{name}: expected a gymnasium.vector.VectorEnv, got {env!r}, which has no "
                    f"{needed!r}"
                )
        core = env.unwrapped if hasattr(env, "unwrapped") else env
        size = getattr(core, "batch_size", env.num_envs)
        if getattr(core, "is_async", False):  # EnvPool's attribute
            size = core.config["batch_size"]
        # A pool that answers for some of its environments at a time cannot fill a row.
        if (env.num_envs, size) != (self.n, self.n):
            raise ValueError(
                f"{name}: expected a vector environment that steps {self.n} environments together, "
                f"got one that steps {size} of {env.num_envs}; make must pass its argument on as "
                "num_envs"
            )
        if seeded and not self._factory.takes_seed and hasattr(core, "all_env_ids"):
            raise ValueError(
                f"{name}: EnvPool is seeded when it is created, so make needs a parameter `seed`: "
                "VectorEnvFactory(lambda n, seed: envpool.make_gymnasium(..., num_envs=n, "
                "seed=seed))"
            )
        self.spaces = Spaces(env.single_observation_space, env.single_action_space, _name_of(core))
        self.mode = _mode_of(env, core, name)
        self._seeds_on_reset = not self._factory.takes_seed
        # As of gymnasium 1.4, workers remember a reset only if they write to shared memory.
        forgets = _class_of(core) == _ASYNC and not core.shared_memory
        if self.mode == NEXT_STEP and forgets:
            raise ValueError(
                f"{name}: AsyncVectorEnv(shared_memory=False) resets an environment a second time "
                "in the step after its reset; use shared_memory=True or "
                "autoreset_mode=AutoresetMode.SAME_STEP"
            )
        self.core = core
        self.shares_generator = _class_of(core) == _CARTPOLE
        # Other classes always step all of their environments.
        self.can_rest = isinstance(core, gym.vector.SyncVectorEnv)
        if self.shares_generator:
            # Set on the object, so that resets through wrappers reach it too.
            core.reset = MethodType(partial(_reset_carts, core.reset), core)
        # For unknown classes each partial reset is checked. EnvPool makes a class per game; all of them have
        # this attribute.
        self._trusted = _class_of(core) in _HONOURING or hasattr(core, "all_env_ids")
        self._pool = envpool_steps(env)
        self.step = env.step if self._pool is None else self._pool.step

    def reset_all(self, seeds: Sequence[int | None], options: dict[str, Any] | None = None) -> Any:
        """Reset all environments; returns the result of `reset`.

        seeds: one seed per environment; None where the environment's generator continues.
        options: passed to the environment's own `reset`.
        """
        reset = self.env.reset if options is None else partial(self.env.reset, options=options)
        # After a row that failed, a reset may still be under way; its answer must not be
        # taken for this one's.
        if self._pool is not None:
            self._pool.forget_reset()
        if not self._seeds_on_reset or all(seed is None for seed in seeds):
            return reset()
        forms = _forms_of(seeds)
        # Tried in turn: environments do not declare which form they accept.
        # An environment's own error, not about the form, recurs with the last form
        # and is raised there.
        for seed in forms[:-1]:
            with suppress(*_REFUSALS):
                return reset(seed=seed)
        return reset(seed=forms[-1])

    @property
    def reset_info(self) -> dict[str, Any]:
        """The stacked info of the last reset; {} if there is none."""
        if callable(self._reset_info):
            self._reset_info = self._reset_info()
        info: dict[str, Any] = self._reset_info
        return info

    @reset_info.setter
    def reset_info(self, info: dict[str, Any]) -> None:
        """Replace the info."""
        self._reset_info = info

    def check_reset(
        self,
        which: NDArray[np.bool_],
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        name: str,
    ) -> None:
        """Check that the environments of a mask can be reset with seeds and options.

        seeds: of all environments; None where none is given.

        Raises:
            ValueError: for environments that share one generator, or take their seeds when made, unless all
                are reset.
        """
        seeded = [i for i in np.flatnonzero(which).tolist() if seeds[i] is not None]
        if self.shares_generator and not which.all() and (seeded or options):
            raise ValueError(
                f"{name}: expected neither seeds nor options in a reset of some environments, because all "
                f"environments of a {type(self.core).__name__} share one random generator and its bounds; "
                "reset all, or use single environments"
            )
        if not self._seeds_on_reset and seeded and len(seeded) < self.n:
            raise ValueError(
                f"{name}: expected seeds for all environments or none, because {type(self.core).__name__} "
                f"takes its seeds when it is made; got seeds for {len(seeded)} of {self.n}"
            )

    def start_reset(self, which: NDArray[np.intp]) -> None:
        """Start `reset_some` asynchronously with the same arguments, if the environment uses threads."""
        if self._pool is not None:
            self._pool.start_reset(which)

    def reset_some(
        self,
        which: NDArray[np.intp],
        observation: Tree,
        seeds: Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Tree:
        """Reset some environments; return their observations, [len(which), ...].

        which: numbers of the environments to reset, in order.
        observation: the latest observations of all environments, [n, ...], if any.
        seeds: seeds of all environments for the reset. Ignored by environments that share a single
            seed.
        options: passed to the environment's own `reset`, with the mask.

        Raises:
            ValueError: if the other environments were reset too, or the number of observations is wrong.
        """
        if self._pool is not None:
            observation = self._pool.reset(which)
            # Made only if it is read: samplers do not.
            self._reset_info = partial(self._pool.reset_info, which)
            return observation
        mask = np.zeros(self.n, bool)
        mask[which] = True
        # Copied before the reset: many environments return the same array each time.
        known = self._trusted or observation is None
        others = None if known else pick(observation, ~mask)
        fresh = self._masked_reset(mask, which, seeds, options or {})
        # Environments return all observations, or only those of the environments that were reset.
        rows = len(_first_leaf(fresh))
        if rows == len(which):
            return fresh
        if rows != self.n:
            raise ValueError(
                f"reset of {len(which)} environments: expected {len(which)} or {self.n} "
                f"observations, got {rows}"
            )
        # A reset of the others goes unnoticed if they have not moved since their own reset.
        if others is not None and not same_trees(pick(fresh, ~mask), others):
            raise ValueError(
                "its reset ignores options['reset_mask'], so one environment cannot be reset while "
                "the others continue; use autoreset_mode=AutoresetMode.SAME_STEP, or an "
                "environment that supports the mask"
            )
        return pick(fresh, which)

    def _masked_reset(
        self,
        mask: NDArray[np.bool_],
        which: NDArray[np.intp],
        seeds: Sequence[int | None] | None,
        options: dict[str, Any],
    ) -> Tree:
        # A new mask for each call: environments pop it from the options, or keep it.
        if self._seeds_on_reset and seeds is not None:
            forms: list[Any] = [list(seeds)]
            if all(seeds[i] is not None for i in which.tolist()):
                forms.append(np.array([_short(seeds[i]) for i in which.tolist()]))
            # Never a single seed, unlike `reset_all`: it could reseed a generator
            # that the others share.
            for seed in forms:
                with suppress(*_REFUSALS):
                    observation, self.reset_info = self.env.reset(
                        seed=seed, options={**options, "reset_mask": mask.copy()}
                    )
                    return observation
        observation, self.reset_info = self.env.reset(options={**options, "reset_mask": mask})
        return observation

    def remake(self, seeds: Sequence[int | None], name: str) -> None:
        """Make a new environment if it can be seeded only when made. The next reset must reset all."""
        if self._seeds_on_reset:
            return
        self.close()
        self._make(seeds, name)

    # ------------------------------------------------------------------ the environments of a SyncVectorEnv

    def freeze(self, which: NDArray[np.intp]) -> None:
        """Freeze environments of a SyncVectorEnv until `wake_all`."""
        for i in which.tolist():
            # Never twice, as `_awake` removes a single layer.
            if not isinstance(self.core.envs[i], FrozenEnv):
                self.core.envs[i] = FrozenEnv(self.core.envs[i])
            # Otherwise the next step would reset it, or refuse to step.
            self.core._autoreset_envs[i] = False

    def wake_all(self) -> None:
        """Unfreeze all environments of a SyncVectorEnv."""
        self.core.envs[:] = self._awake()

    def single_envs(self) -> list[Any]:
        """Return the environments to save one by one; empty if the vector environment is saved as a whole."""
        # Exactly this class, without wrappers: others may have state besides that of their environments.
        return self._awake() if _class_of(self.env) == _SYNC else []

    def _awake(self) -> list[Any]:
        return [env.env if isinstance(env, FrozenEnv) else env for env in self.core.envs]

    def wake_for_states(self) -> None:
        """Prepare a SyncVectorEnv for loading the states of its environments."""
        self.wake_all()
        # Placeholder observations, which a partial reset returns for the others and nobody reads.
        zeros = example_of(self.spaces.observation)
        self.env._env_obs = [copied(zeros) for _ in self.core.envs]

    # ------------------------------------------------------------------ attributes

    def get(self, name: str) -> list[Any]:
        """Return an attribute of each environment."""
        core = self.env.unwrapped
        if hasattr(core, "envs"):
            return [one.get_wrapper_attr(name) for one in core.envs]
        if hasattr(core, "get_attr"):
            return list(core.get_attr(name))
        return self._for_each(getattr(self.env, name))

    def set(self, name: str, value: Any) -> None:
        """Set an attribute of each environment. Raises AttributeError if there is none."""
        core = self.env.unwrapped
        if hasattr(core, "envs"):
            for one in core.envs:
                set_env_attribute(one, name, value)
        elif hasattr(core, "set_attr"):
            # As a list: a value that is a list would be split over the environments.
            core.set_attr(name, [value] * self.n)
        else:
            set_env_attribute(self.env, name, value)

    def set_each(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute to a separate value in each environment.

        Raises:
            AttributeError: if there is none.
            TypeError: if the environments share the attribute, and the values differ.
        """
        core = self.env.unwrapped
        if hasattr(core, "envs"):
            for one, value in zip(core.envs, values, strict=True):
                set_env_attribute(one, name, value)
        elif hasattr(core, "set_attr"):
            core.set_attr(name, list(values))
        elif all(value is values[0] or value == values[0] for value in values):
            set_env_attribute(self.env, name, values[0])
        else:
            raise TypeError(
                f"set_attr: {name}: expected equal values, because all environments of {core!r} share "
                "it; use single environments"
            )

    def envs_to_call(self) -> list[Any]:
        """Return the environments of a SyncVectorEnv. Raises TypeError for other vector environments."""
        core = self.env.unwrapped
        if not hasattr(core, "envs"):
            raise TypeError(
                f"env_apply: expected single environments or a SyncVectorEnv, got {core!r}, whose "
                "environments cannot be reached one by one; use env_method"
            )
        return self._awake()

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results. Most environments take attributes too."""
        core = self.env.unwrapped
        if hasattr(core, "envs"):
            # All are looked up before any is called, so a misspelled name changes nothing.
            return [method(*args, **kwargs) for method in self.get(name)]
        if hasattr(core, "get_attr"):
            return list(core.call(name, *args, **kwargs))
        # Attributes too, as in gymnasium's `call`.
        value = getattr(self.env, name)
        return self._for_each(value(*args, **kwargs) if callable(value) else value)

    def _for_each(self, value: Any) -> list[Any]:
        if isinstance(value, np.ndarray):
            parts = value.ndim > 0 and len(value) == self.n
        else:
            parts = isinstance(value, (list, tuple)) and len(value) == self.n
        return list(value) if parts else [value] * self.n

    # ------------------------------------------------------------------ failures, and the end

    def index_in(self, error: BaseException) -> int | None:
        """Return the environment in which an error was raised, or None if unknown."""
        # Known only for SyncVectorEnv, whose loops use the local variable `i`.
        trace, found = error.__traceback__ if self.can_rest else None, None
        while trace is not None:
            names = trace.tb_frame.f_locals
            if names.get("self") is self.core and isinstance(names.get("i"), int):
                found = names["i"]
            trace = trace.tb_next
        return found

    def close(self) -> None:
        """Close the environment. Idempotent."""
        # All references are dropped too: a native environment's threads end with its object.
        # Taken first, so that a second call does nothing even if `close` raises.
        env, self.env, self.core = self.env, None, None
        self.__dict__.pop("step", None)
        self._pool = None
        if env is not None:
            env.close()


class FrozenEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Replaces an environment of a SyncVectorEnv that has ended its episode and waits for a reset.

    Attributes, methods and `close` are forwarded to the environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._zeros = example_of(env.observation_space)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return zeros without stepping the environment."""
        # Not ended, or the vector environment would reset it. It copies the zeros,
        # so they can be shared.
        return self._zeros, 0.0, False, False, {}


def _reset_carts(
    reset_all: Any, core: Any, *, seed: int | None = None, options: dict[str, Any] | None = None
) -> Any:
    """Reset a CartPoleVectorEnv, or the environments that a mask selects."""
    mask = None if options is None else options.get("reset_mask")
    if mask is None:
        return reset_all(seed=seed, options=options)
    if seed is not None:
        raise ValueError(
            "CartPoleVectorEnv: seed: expected None with a reset_mask, because all environments "
            "share one random generator"
        )
    # Same draws from the same generator as in the environment's own automatic reset.
    core.state[:, mask] = core.np_random.uniform(
        low=core.low, high=core.high, size=(4, int(mask.sum()))
    )
    core.steps[mask] = 0
    core.prev_done[mask] = False
    return core.state.T.astype("float32"), {}


def _class_of(env: Any) -> str:
    return f"{type(env).__module__}.{type(env).__qualname__}"


def _short(seed: int | None) -> int:
    assert seed is not None
    return seed & BITS_31


def _forms_of(seeds: Sequence[int | None]) -> list[Any]:
    """Return seeds as a list, as an array if none is missing, and as a single int for all."""
    known = [seed for seed in seeds if seed is not None]
    # A single seed is used as it is, so the episodes equal those of a plain loop over the environment.
    one = known[0] if len(seeds) == 1 else int(np.random.SeedSequence(known).generate_state(1)[0])
    # The form of AtariVectorEnv, which takes 31 bits.
    arrays = [np.array([_short(seed) for seed in seeds])] if len(known) == len(seeds) else []
    return [list(seeds), *arrays, one]


def _name_of(core: Any) -> str:
    # A SyncVectorEnv is named after its environments.
    inner = (getattr(core, "envs", None) or [None])[0]
    for holder in (core, inner):
        name = getattr(getattr(holder, "spec", None), "id", None)
        if isinstance(name, str):
            return name
    return type(core if inner is None else getattr(inner, "unwrapped", inner)).__name__


def _mode_of(env: Any, core: Any, name: str) -> str:
    # The instance attribute first: AtariVectorEnv's class metadata has the mode of the last one made.
    mode_found = getattr(core, "autoreset_mode", None) or getattr(env, "metadata", {}).get(
        "autoreset_mode"
    )
    mode = getattr(mode_found, "value", mode_found)
    if mode not in _MODES:
        raise ValueError(
            f"{name}: expected metadata['autoreset_mode'] to be a gymnasium.vector.AutoresetMode "
            f"(gymnasium 1.1 or later), got {mode_found!r}"
        )
    return str(mode)


def _first_leaf(tree: Tree) -> Any:
    while isinstance(tree, (dict, tuple)):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree
