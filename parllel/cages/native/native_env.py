"""One native vector environment, whatever its autoreset mode and the form of its seeds.

    mode       at the end of an episode the environment                     a reset in the same row is then
    SameStep   has begun the next one; the last observation is in the info  done
    NextStep   would ignore the next action, and begin then                 a partial reset, ahead of that
    Disabled   must be reset before it is stepped                           a partial reset

A partial reset is `reset(options={"reset_mask": mask})`, as gymnasium defines it. Without it, a step in which
some environments ignore their actions would be part of the batch, as what never was. CartPoleVectorEnv
ignores the mask and resets all, without a word: it is taught to follow it.

    attributes         are those of
    SyncVectorEnv      each of its environments, through their wrappers
    AsyncVectorEnv     the same, by its own `get_attr`, `set_attr` and `call`
    others             the vector environment: what has n parts is one for each, all else is of all
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
# Those known to reset only the environments of a mask. By name, so that no library is imported for the sake
# of knowing its classes.
_HONOURING = {
    _SYNC,
    _ASYNC,
    _CARTPOLE,  # once it has been taught
    "ale_py.vector_env.AtariVectorEnv",
    "parllel.distributed.messaging.vectorized_kafka_env.KafkaVectorEnv",
}
# What environments raise for seeds of a form that they do not take.
_REFUSALS = (TypeError, ValueError, AttributeError, AssertionError, gym.error.Error)


class NativeEnv:
    """A vector environment of n, made and asked alike.

    Args:
        factory: makes it.
        seeds: an int of 32 bits for each environment, None for none.
        name: what messages call all of them, until their own name is known.

    Attributes:
        env, core: the environment, and the same without its wrappers.
        can_rest: whether single environments can stay as they are while the others are stepped.
        n: how many environments it holds.
        mode: one of SAME_STEP, NEXT_STEP, DISABLED.
        spaces: of each environment.

    Raises:
        TypeError, ValueError: if it is no vector environment, or one of another size or of an unknown mode.
    """

    def __init__(self, factory: VectorEnvFactory, seeds: Sequence[int | None], name: str) -> None:
        self.n = len(seeds)
        self._factory = factory
        self.env: Any = None
        self.core: Any = None
        self._make(seeds, name)

    def _make(self, seeds: Sequence[int | None], name: str) -> None:
        given = None if None in seeds else [seed & BITS_31 for seed in seeds if seed is not None]
        self.env = self._factory.make(self.n, given)
        try:
            self._look_at(name, given is not None)
        except BaseException:
            with suppress(Exception):  # what was raised first is what matters
                self.close()
            raise

    def _look_at(self, name: str, seeded: bool) -> None:
        env = self.env
        for needed in ("reset", "step", "num_envs", "single_action_space"):
            if not hasattr(env, needed):
                raise TypeError(
                    f"{name}: expected a gymnasium.vector.VectorEnv, got {env!r} without {needed!r}"
                )
        core = env.unwrapped if hasattr(env, "unwrapped") else env
        size = getattr(core, "batch_size", env.num_envs)
        if getattr(core, "is_async", False):  # as EnvPool says it
            size = core.config["batch_size"]
        if (env.num_envs, size) != (self.n, self.n):
            raise ValueError(
                f"{name}: expected a vector environment of {self.n} that are stepped together, got "
                f"{env.num_envs}, of which {size} are; let make pass its argument on as num_envs"
            )
        if seeded and not self._factory.takes_seed and hasattr(core, "all_env_ids"):
            raise ValueError(
                f"{name}: EnvPool takes its seeds when it is made; let make have an argument `seed`: "
                "VectorEnvFactory(lambda n, seed: envpool.make_gymnasium(..., num_envs=n, seed=seed))"
            )
        self.spaces = Spaces(env.single_observation_space, env.single_action_space, _name_of(core))
        self.mode = _mode_of(env, core, name)
        self._seeds_on_reset = not self._factory.takes_seed
        # As of gymnasium 1.4: its workers note a reset only where they write to shared memory.
        forgets = _class_of(core) == _ASYNC and not core.shared_memory
        if self.mode == NEXT_STEP and forgets:
            raise ValueError(
                f"{name}: AsyncVectorEnv(shared_memory=False) resets an environment once more in the step "
                "after its reset; give it shared_memory=True, or autoreset_mode=AutoresetMode.SAME_STEP"
            )
        self.core = core
        # Others cannot leave some environments as they are while the rest are stepped.
        self.can_rest = isinstance(core, gym.vector.SyncVectorEnv)
        if _class_of(core) == _CARTPOLE:
            # On the object, so that resets reach it through wrappers as before.
            core.reset = MethodType(partial(_reset_carts, core.reset), core)
        # Whether a partial reset leaves the others alone is looked at where it is not known. EnvPool makes a
        # class for each game; all of them share this attribute.
        self._trusted = _class_of(core) in _HONOURING or hasattr(core, "all_env_ids")
        self._pool = envpool_steps(env)
        self.step = env.step if self._pool is None else self._pool.step

    def reset_all(self, seeds: Sequence[int | None]) -> Any:
        """Reset all environments; return what `reset` returns.

        seeds: None for one whose own generator goes on.
        """
        if self._pool is not None:
            self._pool.forget_reset()
        if not self._seeds_on_reset or all(seed is None for seed in seeds):
            return self.env.reset()
        forms = _forms_of(seeds)
        # One after the other, as environments do not say which of them they take.
        for seed in forms[:-1]:
            with suppress(*_REFUSALS):
                return self.env.reset(seed=seed)
        return self.env.reset(seed=forms[-1])

    def start_reset(self, which: NDArray[np.intp]) -> None:
        """Begin what `reset_some` does with the same numbers, where the environment has threads for it."""
        if self._pool is not None:
            self._pool.start_reset(which)

    def reset_some(
        self, which: NDArray[np.intp], observation: Tree, seeds: Sequence[int | None] | None = None
    ) -> Tree:
        """Reset some environments; return their observations, [len(which), ...].

        which: their numbers, in order.  observation: the last one of all, [n, ...], if there is one.
        seeds: of all, if they are to be seeded; an environment that takes a single seed for all is not.

        Raises:
            ValueError: if the others were reset as well, or the observations are not those of either.
        """
        if self._pool is not None:
            return self._pool.reset(which)
        mask = np.zeros(self.n, bool)
        mask[which] = True
        # A copy, before the reset: many environments return the same array each time.
        known = self._trusted or observation is None
        others = None if known else pick(observation, ~mask)
        fresh = self._masked_reset(mask, which, seeds)
        rows = len(_first_leaf(fresh))
        if rows == len(which):
            return fresh
        if rows != self.n:
            raise ValueError(
                f"reset of {len(which)} environments: expected as many observations, or {self.n}, got {rows}"
            )
        # Only where the others have moved since their own reset would it show.
        if others is not None and not same_trees(pick(fresh, ~mask), others):
            raise ValueError(
                "its reset ignores options['reset_mask'], so that one environment cannot be reset while "
                "others go on; use autoreset_mode=AutoresetMode.SAME_STEP, or an environment that takes it"
            )
        return pick(fresh, which)

    def _masked_reset(
        self, mask: NDArray[np.bool_], which: NDArray[np.intp], seeds: Sequence[int | None] | None
    ) -> Tree:
        # A mask of its own for each call: environments take it out of the options, or keep it.
        if self._seeds_on_reset and seeds is not None:
            forms: list[Any] = [list(seeds)]
            if all(seeds[i] is not None for i in which.tolist()):
                forms.append(np.array([_short(seeds[i]) for i in which.tolist()]))
            for seed in forms:
                with suppress(*_REFUSALS):
                    return self.env.reset(seed=seed, options={"reset_mask": mask.copy()})[0]
        return self.env.reset(options={"reset_mask": mask})[0]

    def remake(self, seeds: Sequence[int | None], name: str) -> None:
        """Make it anew, where seeds count only then; the next reset has to be of all."""
        if self._seeds_on_reset:
            return
        self.close()
        self._make(seeds, name)

    # ------------------------------------------------------------------ the environments of a SyncVectorEnv

    def freeze(self, which: NDArray[np.intp]) -> None:
        """Freeze environments of a SyncVectorEnv until `wake_all`."""
        for i in which.tolist():
            if not isinstance(self.core.envs[i], FrozenEnv):
                self.core.envs[i] = FrozenEnv(self.core.envs[i])
            # Otherwise the next step would reset it, or refuse to step any.
            self.core._autoreset_envs[i] = False

    def wake_all(self) -> None:
        """Let all environments of a SyncVectorEnv be stepped again."""
        self.core.envs[:] = self._awake()

    def single_envs(self) -> list[Any]:
        """Return the environments to save one by one; empty if it has to be saved as a whole."""
        # Exactly this class, and without wrappers: others may keep more than their environments do.
        return self._awake() if _class_of(self.env) == _SYNC else []

    def _awake(self) -> list[Any]:
        return [env.env if isinstance(env, FrozenEnv) else env for env in self.core.envs]

    def wake_for_states(self) -> None:
        """Prepare a SyncVectorEnv for the states that its environments are about to be given."""
        self.wake_all()
        # What a partial reset returns for the others, which is not looked at.
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
        """Set an attribute of each environment; AttributeError where it is not found."""
        core = self.env.unwrapped
        if hasattr(core, "envs"):
            for one in core.envs:
                set_env_attribute(one, name, value)
        elif hasattr(core, "set_attr"):
            # As a list, or a value that is one would be taken for values of each.
            core.set_attr(name, [value] * self.n)
        else:
            set_env_attribute(self.env, name, value)

    def method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Call a method of each environment; return the results."""
        core = self.env.unwrapped
        if hasattr(core, "envs"):
            # All are looked up before any is called: a misspelled name then changes nothing.
            return [method(*args, **kwargs) for method in self.get(name)]
        if hasattr(core, "get_attr"):
            return list(core.call(name, *args, **kwargs))
        return self._for_each(getattr(self.env, name)(*args, **kwargs))

    def _for_each(self, value: Any) -> list[Any]:
        if isinstance(value, np.ndarray):
            parts = value.ndim > 0 and len(value) == self.n
        else:
            parts = isinstance(value, (list, tuple)) and len(value) == self.n
        return list(value) if parts else [value] * self.n

    # ------------------------------------------------------------------ failures, and the end

    def index_in(self, error: BaseException) -> int | None:
        """Return which environment an error comes from, None if that is not known."""
        # Known of SyncVectorEnv alone, whose loops count by this name.
        trace, found = error.__traceback__ if self.can_rest else None, None
        while trace is not None:
            names = trace.tb_frame.f_locals
            if names.get("self") is self.core and isinstance(names.get("i"), int):
                found = names["i"]
            trace = trace.tb_next
        return found

    def close(self) -> None:
        """Close the environment; may be called twice."""
        # Forgotten, too: the threads of native environments end when the object does.
        env, self.env, self.core = self.env, None, None
        self.__dict__.pop("step", None)
        self._pool = None
        if env is not None:
            env.close()


class FrozenEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment of a SyncVectorEnv whose episode has ended and that waits for a reset.

    Attributes, methods and `close` are those of the environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._zeros = example_of(env.observation_space)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Do nothing."""
        return self._zeros, 0.0, False, False, {}


def _reset_carts(
    reset_all: Any, core: Any, *, seed: int | None = None, options: dict[str, Any] | None = None
) -> Any:
    """Reset a CartPoleVectorEnv, or those of its environments that a mask selects."""
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


def _class_of(env: Any) -> str:
    return f"{type(env).__module__}.{type(env).__qualname__}"


def _short(seed: int | None) -> int:
    assert seed is not None
    return seed & BITS_31


def _forms_of(seeds: Sequence[int | None]) -> list[Any]:
    """Return seeds as a list, one for each environment; as an array, where none lacks; and one for all."""
    known = [seed for seed in seeds if seed is not None]
    # The only one as it is: the episode is then that of a loop over the vector environment itself.
    one = known[0] if len(seeds) == 1 else int(np.random.SeedSequence(known).generate_state(1)[0])
    # As AtariVectorEnv has it, which takes 31 bits.
    arrays = [np.array([_short(seed) for seed in seeds])] if len(known) == len(seeds) else []
    return [list(seeds), *arrays, one]


def _name_of(core: Any) -> str:
    # A SyncVectorEnv is called what its environments are.
    inner = (getattr(core, "envs", None) or [None])[0]
    for holder in (core, inner):
        name = getattr(getattr(holder, "spec", None), "id", None)
        if isinstance(name, str):
            return name
    return type(core if inner is None else getattr(inner, "unwrapped", inner)).__name__


def _mode_of(env: Any, core: Any, name: str) -> str:
    # The environment's own attribute first: AtariVectorEnv notes the mode of the last one made for all.
    said = getattr(core, "autoreset_mode", None) or getattr(env, "metadata", {}).get(
        "autoreset_mode"
    )
    mode = getattr(said, "value", said)
    if mode not in _MODES:
        raise ValueError(
            f"{name}: expected metadata['autoreset_mode'] to be a gymnasium.vector.AutoresetMode, "
            f"as gymnasium 1.1 and later have it, got {said!r}"
        )
    return str(mode)


def _first_leaf(tree: Tree) -> Any:
    while isinstance(tree, (dict, tuple)):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree
