"""Construction of environments from factories, with checks, ownership and seeding of action spaces."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from parllel.cages.argument_checks import check_factory
from parllel.cages.env_registry import explain_unregistered, register_adopted
from parllel.cages.owners import Owners
from parllel.cages.spaces import Spaces, check_alike
from parllel.envs.single_env_adapter import SingleEnvAdapter

EnvFactory: TypeAlias = Callable[[], "gym.Env[Any, Any]"]

BITS_31 = 2**31 - 1  # mask: native environments take seeds of 31 bits
_UNREGISTERED = (gym.error.UnregisteredEnv, gym.error.DeprecatedEnv)


class VectorEnvFactory:
    """Factory of a native vector environment, such as CartPoleVectorEnv, AtariVectorEnv or EnvPool's.

    Pass it to a cage in place of a list of factories: `VectorizedCage(VectorEnvFactory(make),
    n=16)`. The cage then steps its `n` environments with one call and copies whole rows. A
    VectorEnvFactory called without arguments makes a single environment, so it can also be the
    `env_factory` of a cage with one environment.

    Args:
        make: called with the number of environments; returns a `gymnasium.vector.VectorEnv` or an object
            with its interface. If it has an argument `seed`, it receives a list with one 31-bit int per
            environment. This is for environments that take their seeds when made, as EnvPool does.

    Example:
        >>> from functools import partial
        >>> import gymnasium as gym
        >>> VectorEnvFactory(partial(gym.make_vec, "CartPole-v1", vectorization_mode="sync")).takes_seed
        False
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        check_factory(make, "VectorEnvFactory: make")
        self._make = make

    @property
    def takes_seed(self) -> bool:
        """Whether the environments take their seeds when made rather than in their first reset."""
        try:
            parameters = inspect.signature(self._make).parameters
        except (TypeError, ValueError):  # of a class that is not written in Python
            return False
        # Not `**kwargs`: gymnasium.make_vec passes those on to the environment.
        return "seed" in parameters

    def make(self, n: int, seeds: Sequence[int] | None = None) -> Any:
        """Make a vector environment of n environments.

        seeds: 31-bit seeds, one per environment; used only if `takes_seed`, and drawn if None.
        """
        if not self.takes_seed:
            return call_factory(partial(self._make, n))
        if seeds is None:
            # EnvPool does not accept None, and without the argument would seed all environments alike.
            seeds = (np.random.SeedSequence().generate_state(n) & BITS_31).tolist()
        return call_factory(partial(self._make, n, seed=list(seeds)))

    def __call__(self) -> SingleEnvAdapter:
        """Make a single environment: a vector environment of one with the plain interface."""
        return SingleEnvAdapter(self.make(1), self._make_one if self.takes_seed else None)

    def _make_one(self, seed: int) -> Any:
        return self.make(1, [seed & BITS_31])

    def __repr__(self) -> str:
        return f"VectorEnvFactory({self._make!r})"


def make_env(factory: EnvFactory) -> gym.Env[Any, Any]:
    """Call a factory. Raises TypeError unless it returns an environment."""
    env: gym.Env[Any, Any] = call_factory(factory)
    # Not by the attribute alone: a gymnasium environment may have one of this name.
    if hasattr(env, "possible_agents") and not isinstance(env, gym.Env):
        raise _several_agents(env)
    if isinstance(env, gym.vector.VectorEnv):
        raise TypeError(
            f"environment factory: expected a gymnasium.Env, got the vector environment {env!r}; "
            "instead of a list of factories, pass VectorEnvFactory(make), where make takes the "
            "number of environments"
        )
    # Not isinstance: other libraries' adapters need not inherit from gymnasium.Env.
    for needed in ("reset", "step", "close", "observation_space", "action_space"):
        if not hasattr(env, needed):
            raise TypeError(
                f"environment factory: expected a gymnasium.Env, got {env!r}, which has no "
                f"{needed!r}"
            )
    return env


# Of this process only: each worker makes its own environments, and claims them there.
_STEPPED = Owners()


def claim_env(env: Any, stepper: Any, name: str) -> None:
    """Claim an environment for `stepper`, until `release_envs`.

    Raises:
        ValueError: if the environment is already stepped, directly or inside other wrappers.
    """
    core = _core_of(env)
    other = _STEPPED.owner_of(core)
    if other is not None:
        owner = "another place in this cage" if other is stepper else "another cage"
        raise ValueError(
            f"{name}: expected a new environment from the factory, got {env!r}, which {owner} "
            "already steps; create a new environment in each call, for example with lambda: "
            "gymnasium.make(...), and close cages that are no longer used"
        )
    _STEPPED.claim(core, stepper)


def release_envs(stepper: Any) -> None:
    """Release all environments of `stepper`."""
    _STEPPED.release(stepper)


def _core_of(env: Any) -> Any:
    """Return the innermost environment, which new wrappers may share."""
    core = getattr(env, "unwrapped", env)
    # Attributes of our own adapters, which are not gymnasium wrappers.
    for name in ("parallel_env", "vector_env"):
        core = getattr(core, name, core)
    return getattr(core, "unwrapped", core)


def call_factory(factory: Callable[[], Any]) -> Any:
    """Call a factory. If its environment is unregistered, retry with the main process's registry."""
    try:
        return factory()
    # Only after a failure, see env_registry.
    except Exception as error:
        if not _is_unregistered(error):
            raise
        if not register_adopted():
            explain_unregistered(error)
            raise
    try:  # again, with the environments that the main process has registered
        return factory()
    except Exception as error:
        if _is_unregistered(error):
            explain_unregistered(error)
        raise


def _is_unregistered(error: BaseException) -> bool:
    # Or its cause: a factory may raise its own error from it, as `env_named` does.
    return isinstance(error, _UNREGISTERED) or isinstance(error.__cause__, _UNREGISTERED)


def _several_agents(env: Any) -> TypeError:
    made = "make()"
    if hasattr(env, "agent_iter"):  # PettingZoo's AEC interface, in which agents take turns
        made = "pettingzoo.utils.aec_to_parallel(make())"
    return TypeError(
        f"environment factory: expected a gymnasium.Env, got {env!r}, a PettingZoo environment of several "
        f"agents; pass lambda: parllel.envs.ParallelEnvAdapter({made})"
    )


def spaces_of(envs: Sequence[gym.Env[Any, Any]], index: int = 0) -> Spaces:
    """Return the spaces shared by all environments. Raises ValueError if they differ.

    index: number of the first environment, for the message.
    """
    first = envs[0]
    spec = getattr(first, "spec", None)
    # Environments not made by gymnasium.make have no spec.
    name = spec.id if spec is not None else type(getattr(first, "unwrapped", first)).__name__
    # Copies, as cages pickle these.
    expected = Spaces(equal_space(first.observation_space), equal_space(first.action_space), name)
    # They share one buffer and one agent.
    for i, env in enumerate(envs, index):
        check_alike(Spaces(env.observation_space, env.action_space, name), expected, i, index)
    return expected


def words_of(seed: Any) -> tuple[int | None, int | None]:
    """Return the seeds for an environment's first reset and for its action space; None for None.

    seed: an int is used for the reset directly, so the episode is the same as after
        `env.reset(seed=seed)`. From a SeedSequence, both seeds are drawn.
    """
    if seed is None:
        return None, None
    sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    # Two different words, or the environment and its random actions would draw the same numbers.
    first, second = (int(word) for word in sequence.generate_state(2))
    return (int(seed) if isinstance(seed, (int, np.integer)) else first), second


def seeded_action_space(space: gym.Space[Any], seed: int | None) -> gym.Space[Any]:
    """Return a copy of an action space with its own random generator."""
    # Environments of one class may share a space object, and so its generator.
    if seed is None:
        return copy.deepcopy(space)
    new = equal_space(space)
    new.seed(seed)
    return new


def equal_space(space: gym.Space[Any]) -> gym.Space[Any]:
    """Return a new space equal to another. For Gymnasium's own classes, the random generator is not copied.

    Copying or pickling a space would access its `__dict__`. From then on CPython looks attributes
    up in that dict, and each step of an environment that checks its actions takes a few per cent
    longer.
    """
    if type(space) is spaces.Discrete:
        # Earlier versions of gymnasium have no other dtype, and no such argument.
        dtype: Any = {} if space.dtype == np.int64 else {"dtype": space.dtype}
        return spaces.Discrete(space.n, start=space.start, **dtype)
    if type(space) is spaces.Box:
        return spaces.Box(space.low, space.high, space.shape, space.dtype)
    if type(space) is spaces.MultiDiscrete:
        return spaces.MultiDiscrete(space.nvec, dtype=space.dtype, start=space.start)
    if type(space) is spaces.MultiBinary:
        return spaces.MultiBinary(space.n)
    if type(space) is spaces.Dict:
        # Pairs, because the keys of a dict may be sorted.
        return spaces.Dict([(name, equal_space(part)) for name, part in space.items()])
    if type(space) is spaces.Tuple:
        return spaces.Tuple([equal_space(part) for part in space])
    return copy.deepcopy(space)
