"""Argument checks shared by all cages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parllel.errors import WrongStateError
from parllel.types import State


def check_row(t: int, rows: int, name: str) -> None:
    """Check that `t` is a row of a batch with `rows` rows. Raises IndexError."""
    if not 0 <= t < rows:
        raise IndexError(f"{name}: row {t}: expected 0 to {rows - 1}")


def check_group(group: int, n_groups: int, name: str) -> None:
    """Check that `group` is the number of one of `n_groups` groups. Raises IndexError."""
    if not 0 <= group < n_groups:
        expected = "0, the only group" if n_groups == 1 else f"0 to {n_groups - 1}"
        raise IndexError(f"{name}: group {group}: expected {expected}")


def check_batch(number: int, n_batches: int, name: str) -> None:
    """Check that the buffer has a batch `number`. Raises IndexError, or WrongStateError without a buffer."""
    if not n_batches:
        raise WrongStateError(f"{name}: batch {number}: no samples buffer was set")
    if not 0 <= number < n_batches:
        raise IndexError(f"{name}: batch {number}: expected 0 to {n_batches - 1}")


def check_states(states: Sequence[State], n: int, name: str) -> None:
    """Check that there is one state per environment. Raises ValueError."""
    if len(states) != n:
        raise ValueError(f"{name}: states: expected {n}, one per environment, got {len(states)}")


def check_factory(factory: Any, what: str) -> None:
    """Check that a factory is callable. Raises TypeError."""
    # Common mistakes are passing the environment itself, or its id.
    if not callable(factory):
        raise TypeError(
            f"{what}: expected a function that makes a gymnasium.Env, got {factory!r}; pass "
            "lambda: gymnasium.make(...)"
        )


def check_factories(
    factories: Any, seeds: Sequence[Any] | None, cage: str, expected: int | None = None
) -> Sequence[Any]:
    """Return one seed per factory; if `seeds` is None, all are None.

    expected: the number of factories, if the caller gave one.

    Raises:
        TypeError: if `factories` is not a sequence of functions.
        ValueError: if there is no factory, or the number of factories or seeds is wrong.
    """
    # A string is a sequence too: somebody may pass an environment id.
    if not isinstance(factories, Sequence) or isinstance(factories, str):
        raise TypeError(f"{cage}: env_factories: expected a list of functions, got {factories!r}")
    n = len(factories)
    if expected is not None and n != expected:
        raise ValueError(
            f"{cage}: n: expected the number of factories, {n}, or None, got {expected}"
        )
    seeds = [None] * n if seeds is None else seeds
    if n < 1 or len(seeds) != n:
        raise ValueError(
            f"{cage}: expected at least one factory and one seed per factory, got {n} factories "
            f"and {len(seeds)} seeds"
        )
    for i, factory in enumerate(factories):
        check_factory(factory, f"{cage}: env_factories[{i}]")
    return seeds


def check_native(n: int | None, seeds: Sequence[Any] | None, cage: str) -> Sequence[Any]:
    """Return one seed for each of the `n` environments of a vector environment.

    Raises:
        ValueError: if `n` is missing, or the number of seeds is not `n`.
    """
    if n is None:
        n = 0 if seeds is None else len(seeds)
    seeds = [None] * n if seeds is None else seeds
    if n < 1 or len(seeds) != n:
        raise ValueError(
            f"{cage}: expected n of at least 1 with a VectorEnvFactory, and one seed per "
            f"environment, got n={n} and {len(seeds)} seeds"
        )
    return seeds


def check_pool_options(
    timeout_s: float, participate: bool, n_main: int | None, cores: Sequence[int] | None
) -> None:
    """Check the options of a SynchronizedProcessCage, individually and together. Raises ValueError."""
    if not timeout_s > 0:  # written so that NaN is refused as well
        raise ValueError(f"timeout_s: expected a positive number of seconds, got {timeout_s}")
    # n_main counts environments that the main process steps, which it does only if it participates.
    if n_main is not None and not participate:
        raise ValueError(f"n_main: expected None without participate=True, got {n_main}")
    if cores is not None and not len(cores):
        raise ValueError("cores: expected None or at least one core number, got an empty list")


def check_counts(counts: Sequence[int], n: int, name: str) -> None:
    """Check that there is a non-negative number of steps for each of `n` environments. Raises ValueError."""
    if len(counts) != n or min(counts) < 0:
        raise ValueError(
            f"{name}: counts: expected {n} nonnegative integers, one per environment, got "
            f"{list(counts)}"
        )
