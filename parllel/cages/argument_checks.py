"""Argument checks shared by all cages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


def check_which(which: Any, n: int, name: str) -> NDArray[np.bool_]:
    """Return `which` as an array of a flag per environment. Raises TypeError or ValueError."""
    mask = np.asarray(which)
    if mask.dtype != np.bool_:
        raise TypeError(f"{name}: reset: which: expected an array of bool, got {which!r}")
    if mask.shape != (n,):
        raise ValueError(f"{name}: reset: which: expected shape ({n},), got {mask.shape}")
    return mask


def check_reset_arguments(seeds: Sequence[Any] | None, options: Any, n: int, name: str) -> None:
    """Check seeds and options of a reset. Raises TypeError or ValueError."""
    if seeds is not None and len(seeds) != n:
        raise ValueError(
            f"{name}: reset: seeds: expected {n}, one per environment or None, got {len(seeds)}"
        )
    if options is not None and not isinstance(options, dict):
        raise TypeError(f"{name}: reset: options: expected a dict or None, got {options!r}")


def check_values(values: Sequence[Any], n: int, name: str, attribute: str) -> list[Any]:
    """Return the values of an attribute, one per environment. Raises TypeError or ValueError."""
    # A string or a dict would be taken apart.
    if not isinstance(values, (list, tuple, np.ndarray)):
        raise TypeError(
            f"{name}: set_attr: {attribute}: expected a list of {n} values, got {values!r}"
        )
    if len(values) != n:
        raise ValueError(
            f"{name}: set_attr: {attribute}: expected {n} values, one per environment, got {len(values)}"
        )
    return list(values)


def no_infos(name: str) -> WrongStateError:
    """Build the error for infos of a cage that keeps none."""
    return WrongStateError(
        f"{name}: collect_infos: no infos are kept; make the cage with infos=True"
    )


def check_calls(
    which: Sequence[int] | None, arguments: Sequence[Sequence[Any]] | None, n: int, name: str
) -> tuple[list[int], list[tuple[Any, ...] | None]]:
    """Return the selected environments, and by column their arguments; None for all others.

    Raises:
        IndexError: for a number that no environment has.
        ValueError: if a number is repeated, or there are not as many arguments as environments.
    """
    numbers = list(range(n)) if which is None else [int(i) for i in which]
    calls: list[tuple[Any, ...] | None] = [None] * n
    given = [()] * len(numbers) if arguments is None else arguments
    if len(given) != len(numbers):
        raise ValueError(
            f"{name}: env_apply: arguments: expected {len(numbers)}, one per selected environment, got "
            f"{len(given)}"
        )
    for i, values in zip(numbers, given, strict=True):
        if not 0 <= i < n:
            raise IndexError(f"{name}: env_apply: environment {i}: expected 0 to {n - 1}")
        if calls[i] is not None:
            raise ValueError(f"{name}: env_apply: environment {i} was selected twice")
        calls[i] = tuple(values)
    return numbers, calls
