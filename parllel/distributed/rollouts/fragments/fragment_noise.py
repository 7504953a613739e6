"""Random numbers for actions that depend on a step's position, not on when it is taken.

    steps of an epoch    0 1 2 ... 1023         | 1024 1025 ...         | 2048 ...
    seeds                seed of block 0        | seed of block 1       | ...

Each environment has its own seeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.agents.handler import Handler
from parllel.buffers.tree import buffer_map
from parllel.types import Tree

# Environment, epoch, number of the fragment, and row.
Place: TypeAlias = tuple[int, int, int, int]

# Number of steps whose noise is drawn at once, as the overhead of a draw equals some hundred numbers.
_BLOCK = 1024


class FragmentNoise:
    """Draws the noise of steps, with a separate seed for each block of steps of an environment.

    Actions then depend neither on which environments were ready first nor on the length of batches.

    Args:
        handler: handler of the agent, in sample mode.
        seed: seed of the worker. Workers with the same seed draw the same noise.
        fragment_length: number of steps from the start of a fragment to the start of the next.
    """

    def __init__(self, handler: Handler, seed: int, fragment_length: int) -> None:
        self._handler = handler
        self._seed = seed
        self._length = fragment_length
        # The last block of each environment is enough, since steps are taken in order.
        # Used only by the thread that runs the schedule, hence without a lock.
        self._drawn: dict[int, tuple[tuple[int, int], Tree]] = {}

    def of_steps(self, places: Sequence[Place]) -> Tree:
        """Return the noise [N, ...] of single steps as numpy arrays.

        Returns None if the agent uses no noise.
        """
        cells = []
        for environment, epoch, sequence, row in places:
            block, at = divmod(sequence * self._length + row, _BLOCK)
            noise = self._block(environment, epoch, block)
            cells.append(buffer_map(lambda leaf, at=at: leaf[at], noise))
        return None if cells[0] is None else buffer_map(lambda *leaves: np.stack(leaves), *cells)

    def of_batch(self, T: int, places: Sequence[Place]) -> Tree:
        """Return the noise [T, B, ...] of the next T steps of each environment, like `agent.draw_noise`.

        places: position of each environment's first step.
        """
        starts = [sequence * self._length + row for _, _, sequence, row in places]
        parts: list[Tree] = []
        row = 0
        while row < T:
            # Up to the end of the block that ends first.
            where = [divmod(start + row, _BLOCK) for start in starts]
            n = min(T - row, _BLOCK - max(at for _, at in where))
            columns = [slice(at, at + n) for _, at in where]
            blocks = [
                self._block(environment, epoch, block)
                for (environment, epoch, _, _), (block, _) in zip(places, where, strict=True)
            ]
            if blocks[0] is None:
                return None
            parts.append(buffer_map(partial(_beside, columns), *blocks))
            row += n
        noise = parts[0] if len(parts) == 1 else buffer_map(_joined, *parts)
        return buffer_map(self._handler.convert, noise)

    def _block(self, environment: int, epoch: int, number: int) -> Tree:
        """Return the noise [1024, ...] of a block of steps."""
        drawn = self._drawn.get(environment)
        if drawn is None or drawn[0] != (epoch, number):
            name = f"{self._seed} noise: environment {environment}, epoch {epoch}, block {number}"
            # Not derived by `Seeds`, which would remember every name; a hash is as good.
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
            # Without the agent's own generator, whose state depends on earlier draws.
            noise = self._handler.agent.draw_noise(_BLOCK, 1, seed=seed)
            drawn = (
                (epoch, number),
                buffer_map(lambda leaf: self._handler.to_numpy(leaf)[:, 0], noise),
            )
            self._drawn[environment] = drawn
        return drawn[1]


def _beside(columns: Sequence[slice], *leaves: NDArray[Any]) -> NDArray[Any]:
    """Join rows of each leaf to one array [n, B, ...]."""
    # np.stack would take four times as long.
    return np.concatenate([leaf[rows, None] for leaf, rows in zip(leaves, columns, strict=True)], 1)


def _joined(*leaves: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate(leaves)
