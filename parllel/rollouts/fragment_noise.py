"""Noise that belongs to the place of a step in its fragment, and not to the time at which it is taken."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.agents import Handler
from parllel.buffers import buffer_map
from parllel.types import Tree

# Environment, epoch, number of the fragment, and row.
Place: TypeAlias = tuple[int, int, int, int]


class FragmentNoise:
    """Draw the noise of fragments, each from a seed of its own.

    So actions do not depend on which environments were ready first, nor on how many steps a batch has.

    Args:
        handler: whose agent acts, in sample mode.
        seed: of all noise of a worker; workers with the same seed act alike.
        fragment_length: rows that noise is drawn for at once.
    """

    def __init__(self, handler: Handler, seed: int, fragment_length: int) -> None:
        self._handler = handler
        self._seed = seed
        self._length = fragment_length
        # Of each environment the fragment that was asked for last, since steps come in order.
        self._drawn: dict[int, tuple[tuple[int, int], Tree]] = {}

    def of_steps(self, places: Sequence[Place]) -> Tree:
        """Return the noise [N, ...] of single steps as numpy arrays; None if the agent draws none."""
        cells = []
        for environment, epoch, sequence, row in places:
            noise = self._fragment(environment, epoch, sequence)
            cells.append(buffer_map(lambda leaf, row=row: leaf[row], noise))
        return None if cells[0] is None else buffer_map(_stacked, *cells)

    def of_batch(self, T: int, places: Sequence[Place]) -> Tree:
        """Return the noise [T, B, ...] of the next T steps of each environment, as `agent.draw_noise` does.

        places: of the first step of each.
        """
        columns = [self._column(T, place) for place in places]
        if columns[0] is None:
            return None
        stacked = buffer_map(lambda *leaves: np.stack(leaves, axis=1), *columns)
        return buffer_map(self._handler.convert, stacked)

    def _column(self, T: int, place: Place) -> Tree:
        environment, epoch, sequence, row = place
        parts, left = [], T
        while left > 0:
            noise = self._fragment(environment, epoch, sequence)
            if noise is None:
                return None
            begin, end = row, min(row + left, self._length)
            parts.append(buffer_map(lambda leaf, rows=slice(begin, end): leaf[rows], noise))
            left, row, sequence = left - (end - begin), 0, sequence + 1
        return buffer_map(lambda *leaves: np.concatenate(leaves), *parts)

    def _fragment(self, environment: int, epoch: int, sequence: int) -> Tree:
        """Return the noise [L, ...] of a fragment."""
        drawn = self._drawn.get(environment)
        if drawn is None or drawn[0] != (epoch, sequence):
            name = (
                f"{self._seed} noise: environment {environment}, epoch {epoch}, fragment {sequence}"
            )
            # Not by `Seeds`, which remembers every name; the derivation is as good.
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
            noise = self._handler.agent.draw_noise(self._length, 1, seed=seed)
            drawn = (
                (epoch, sequence),
                buffer_map(lambda leaf: self._handler.to_numpy(leaf)[:, 0], noise),
            )
            self._drawn[environment] = drawn
        return drawn[1]


def _stacked(*leaves: NDArray[Any]) -> NDArray[Any]:
    return np.stack(leaves)
