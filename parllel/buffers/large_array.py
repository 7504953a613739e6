"""Arrays of a state that are too large to exist twice, such as the rows of a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class LargeArray:
    """An array in a state that is written from, and read into, the memory where it is used.

    `save_state` writes it without a copy. `load_state` leaves the elements in the file, so the part
    that returned it in its `state()` has to read them, into memory of its own:

        state["rows"].read_into(self.rows)

    Args:
        array: a contiguous array, which is not copied.

    Attributes:
        shape, dtype: those of the array.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

    def read_into(self, out: NDArray[Any]) -> None:
        """Write the elements into `out`, which must be contiguous.

        Raises:
            ValueError: if the shape or dtype of `out` differs, or the file was changed after the state was
                loaded.
        """
        self._check(out)
        np.copyto(out, self.array)

    def _check(self, out: NDArray[Any]) -> None:
        if (out.shape, out.dtype) != (self.shape, self.dtype) or not out.flags.c_contiguous:
            raise ValueError(
                f"expected a contiguous array of shape {self.shape} and dtype {self.dtype}, got "
                f"{out.shape} and {out.dtype}"
            )
