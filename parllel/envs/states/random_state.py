"""The states of random generators, and of the spaces that draw with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.envs.states.plain_values import plain_copy
from parllel.types import State

_BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}


def generator_state(generator: np.random.Generator) -> State:
    """Return the state of a generator, and of the seed sequence from which it spawns other generators.

    Raises:
        TypeError: for a generator that does not use one of numpy's bit generators.
    """
    bits = generator.bit_generator
    if type(bits).__name__ not in _BIT_GENERATORS:
        raise TypeError(
            f"expected a bit generator of {sorted(_BIT_GENERATORS)}, got {type(bits).__name__}"
        )
    state: State = {"bits": plain_copy(bits.state), "sequence": None}
    # Public since numpy 1.25.
    sequence = getattr(bits, "seed_seq", None) or getattr(bits, "_seed_seq", None)
    if isinstance(sequence, np.random.SeedSequence):
        state["sequence"] = {
            "entropy": _as_ints(sequence.entropy),
            "spawn_key": [int(key) for key in sequence.spawn_key],
            "pool_size": int(sequence.pool_size),
            "n_children_spawned": int(sequence.n_children_spawned),
        }
    return state


def generator_from(state: State) -> np.random.Generator:
    """Return a new generator that continues where `generator_state` was called.

    Raises:
        ValueError: if `state` was not returned by `generator_state`.
    """
    try:
        sequence = state["sequence"]
        # Only for `spawn`: the state of the bits, set next, decides all numbers that are drawn.
        seed = None if sequence is None else np.random.SeedSequence(**sequence)
        bits = _BIT_GENERATORS[state["bits"]["bit_generator"]](seed)
        bits.state = plain_copy(state["bits"])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"not the state of a random generator: {error!r}") from error
    return np.random.Generator(bits)


def space_state(space: gym.Space[Any]) -> State:
    """Return the random state of a space and of the spaces inside it.

    A space that has not sampled yet has no generator, and its state records that.

    Raises:
        TypeError: if one of the spaces samples with anything but a NumPy generator.
    """
    generator = space._np_random
    if not isinstance(generator, np.random.Generator | None):
        raise TypeError(f"space {space}: expected a numpy generator, got {type(generator)}")
    return {
        "class": type(space).__name__,
        "np_random": None if generator is None else generator_state(generator),
        "inside": {name: space_state(inner) for name, inner in _inside(space)},
    }


def load_space_state(space: gym.Space[Any], state: State) -> None:
    """Restore a state returned by `space_state`, so that `space` continues its sequence of samples.

    Raises:
        TypeError: if `state` is not a dict.
        ValueError: if `state` is invalid or belongs to another kind of space. Spaces inside `space` may
            have been changed already.
    """
    if not isinstance(state, dict):
        raise TypeError(f"space {space}: expected its state as a dict, got {state!r}")
    inside = dict(_inside(space))
    expected = {"class": type(space).__name__, "inside": sorted(inside)}
    names = state.get("inside")
    came = {
        "class": state.get("class"),
        "inside": sorted(names) if isinstance(names, dict) else names,
    }
    if came != expected:
        raise ValueError(
            f"space {space}: expected the state of {expected}, got the state of {came}"
        )
    for name, inner in inside.items():
        load_space_state(inner, state["inside"][name])
    saved = state.get("np_random")
    # A space without a generator seeds itself from the system when it first draws.
    space._np_random = None if saved is None else generator_from(saved)  # type: ignore[assignment]


def describe_space(space: Any) -> Any:
    """Return the properties that must agree for a state to fit, as JSON values: kinds, shapes and dtypes."""
    if space is None:
        return None
    described: dict[str, Any] = {"class": type(space).__name__}
    if space.shape is not None:
        described["shape"] = list(space.shape)
    if space.dtype is not None:
        described["dtype"] = str(space.dtype)
    for name in ("n", "nvec", "start"):
        size = getattr(space, name, None)
        if size is not None:
            described[name] = np.asarray(size).tolist()
    inside = {name: describe_space(inner) for name, inner in _inside(space)}
    return {**described, "inside": inside} if inside else described


def _inside(space: gym.Space[Any]) -> Iterator[tuple[str, gym.Space[Any]]]:
    """Yield the spaces in the attributes of a space, whatever its class, by name."""
    for name, value in vars(space).items():
        if isinstance(value, gym.Space):
            yield name, value
            continue
        parts: Any = ()
        if isinstance(value, Mapping):
            parts = value.items()
        elif isinstance(value, (list, tuple)):
            parts = enumerate(value)
        for key, part in parts:
            if isinstance(part, gym.Space):
                yield f"{name}.{key}", part


def _as_ints(entropy: Any) -> Any:
    # A SeedSequence takes a number or several; JSON has no integers of numpy.
    if entropy is None or isinstance(entropy, (int, np.integer)):
        return None if entropy is None else int(entropy)
    return [int(word) for word in entropy]
