"""The numbers by which callers know their environments, and the rows that these have in an agent's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def checked_numbers(env_indices: Any, n: int | None = None) -> list[int]:
    """Return the numbers of environments as ints.

    n: how many observations came with them; None for any number.

    Raises:
        ValueError: if they are not `n` different ints of at least 0.
    """
    numbers = np.asarray(env_indices)
    if numbers.size == 0:
        numbers = numbers.astype(np.intp)
    # A mask would be read as environments 0 and 1.
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or (numbers < 0).any():
        raise ValueError(f"env_indices: expected ints of at least 0, got {env_indices!r}")
    found: list[int] = numbers.tolist()
    if n is not None and len(found) != n:
        raise ValueError(f"env_indices: expected {n}, one for each observation, got {len(found)}")
    if len(set(found)) != len(found):
        raise ValueError(f"env_indices: expected different environments, got {found}")
    return found


class EnvSlots:
    """Give each environment a slot of its own, as low as can be: an agent's memory grows to the highest.

    The first `n_columns` numbers are their own slots, as they are columns of the run in which the agent was
    trained, and a handler may look something up by these. After them come `n_spare` slots that belong to no
    environment.

    Args:
        n_columns: of the run.
        n_spare: how many slots to leave out.
    """

    def __init__(self, n_columns: int, n_spare: int) -> None:
        self._n_columns = n_columns
        self.spare = np.arange(n_columns, n_columns + n_spare)
        self._first = n_columns + n_spare
        self._others: dict[int, int] = {}

    def of(self, numbers: Sequence[int]) -> NDArray[np.intp]:
        """Return the slots of environments, [N]."""
        return np.array([self._slot(number) for number in numbers], np.intp)

    def _slot(self, number: int) -> int:
        if number < self._n_columns:
            return number
        return self._others.setdefault(number, self._first + len(self._others))

    def others(self) -> list[int]:
        """Return the numbers beyond the columns, in the order of their slots."""
        return list(self._others)

    def set_others(self, numbers: Sequence[int]) -> None:
        """Take back what `others` returned; [] forgets all."""
        self._others = {int(number): self._first + i for i, number in enumerate(numbers)}
