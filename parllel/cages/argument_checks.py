"""Check the arguments of cages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.errors import WrongStateError
from parllel.types import State


def check_row(t: int, rows: int, name: str) -> None:
    """Raise IndexError unless `t` is a row of a batch with `rows` rows."""
    if not 0 <= t < rows:
        raise IndexError(f"{name}: row {t}: expected 0 to {rows - 1}")


def check_group(group: int, n_groups: int, name: str) -> None:
    """Raise IndexError unless `group` is the number of one of `n_groups` groups."""
    if not 0 <= group < n_groups:
        expected = "0, as there is one" if n_groups == 1 else f"0 to {n_groups - 1}"
        raise IndexError(f"{name}: group {group}: expected {expected}")


def check_batch(number: int, n_batches: int, name: str) -> None:
    """Raise IndexError unless the buffer has a batch `number`; WrongStateError if it has none at all."""
    if not n_batches:
        raise WrongStateError(f"{name}: batch {number}: no samples buffer was set")
    if not 0 <= number < n_batches:
        raise IndexError(f"{name}: batch {number}: expected 0 to {n_batches - 1}")


def check_states(states: Sequence[State], n: int, name: str) -> None:
    """Raise ValueError unless there are as many states as environments."""
    if len(states) != n:
        raise ValueError(f"{name}: states: expected those of {n} environments, got {len(states)}")


def check_factory(factory: Any, what: str) -> None:
    """Raise TypeError unless a factory can be called."""
    # Common mistakes are an environment instead of a function that makes it, or its name.
    if not callable(factory):
        raise TypeError(
            f"{what}: expected a function that makes a gymnasium.Env, got {factory!r}; give "
            "lambda: gymnasium.make(...)"
        )


def check_factories(
    factories: Any, seeds: Sequence[Any] | None, cage: str, expected: int | None = None
) -> Sequence[Any]:
    """Return a seed for each factory; all None if `seeds` is None.

    expected: how many factories there should be, if that was said.

    Raises:
        TypeError: if `factories` is not a sequence of functions.
        ValueError: if there is no factory, or another number of them or of seeds.
    """
    # An environment's id is a sequence too, of letters.
    if not isinstance(factories, Sequence) or isinstance(factories, str):
        raise TypeError(f"{cage}: env_factories: expected a list of functions, got {factories!r}")
    n = len(factories)
    if expected is not None and n != expected:
        raise ValueError(
            f"{cage}: n: expected the number of factories, {n}, or None, got {expected}"
        )
    seeds = [None] * n if seeds is None else seeds
    if n < 1 or len(seeds) != n:
        raise ValueError(f"{cage}: expected factories and as many seeds, got {n} and {len(seeds)}")
    for i, factory in enumerate(factories):
        check_factory(factory, f"{cage}: env_factories[{i}]")
    return seeds


def check_native(n: int | None, seeds: Sequence[Any] | None, cage: str) -> Sequence[Any]:
    """Return a seed for each of the `n` environments of one vector environment.

    Raises:
        ValueError: if `n` is missing, or there is another number of seeds.
    """
    if n is None:
        n = 0 if seeds is None else len(seeds)
    seeds = [None] * n if seeds is None else seeds
    if n < 1 or len(seeds) != n:
        raise ValueError(
            f"{cage}: expected n of at least 1 with a VectorEnvFactory, and as many seeds, got {n} and "
            f"{len(seeds)}"
        )
    return seeds


def check_pool_options(
    timeout_s: float, participate: bool, n_main: int | None, cores: Sequence[int] | None
) -> None:
    """Raise ValueError if options of a SynchronizedProcessCage are of no use, alone or together."""
    if not timeout_s > 0:  # written so that NaN is refused as well
        raise ValueError(f"timeout_s: expected a positive number of seconds, got {timeout_s}")
    # Only a main process that participates would step them.
    if n_main is not None and not participate:
        raise ValueError(f"n_main: expected participate=True with it, got n_main={n_main}")
    if cores is not None and not len(cores):
        raise ValueError("cores: expected at least one core number, or None, got none")


def check_counts(counts: Sequence[int], n: int, name: str) -> None:
    """Raise ValueError unless there is a non-negative number of steps for each of `n` environments."""
    if len(counts) != n or min(counts) < 0:
        raise ValueError(f"{name}: counts: expected {n} of at least 0, got {list(counts)}")
