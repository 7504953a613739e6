"""Compiled gathering of frame stacks. Imports numba, so it is itself imported only on first use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parllel.system.compilation import compiled

Bytes = NDArray[np.uint8]


@compiled("(u1[:,:,::1], u1[:,::1], i8[::1], i8[::1], u1[:,:,::1])", nogil=True)
def gather(
    frames: Bytes,
    reach: Bytes,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    out: Bytes,
) -> None:
    """Write the stacks that end with `frames[rows, columns]` into `out`, [N, k, bytes], without checks.

    frames: [R, B, bytes].  reach: [R, B], as described in `parllel.arrays.frame_block`.
    """
    # Bytes, so that one compiled loop serves every dtype and shape of frames.
    k, size = out.shape[1], out.shape[2]
    for n in range(len(rows)):
        row, column = rows[n], columns[n]
        code = np.int64(reach[row, column])
        reaches = code & 127
        for number in range(k):
            back = k - 1 - number
            if back > reaches and code >= 128:
                for i in range(size):
                    out[n, number, i] = 0
            else:
                source = row - min(back, reaches)
                for i in range(size):
                    out[n, number, i] = frames[source, column, i]
