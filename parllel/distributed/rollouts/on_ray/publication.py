"""Weights of one version, as workers fetch them.

    trainer   weights, as an argument  -->  RolloutManager, which puts them and keeps the reference
    workers   the reference  <--  RolloutManager, in answer to a report

The process that hands a reference on also owns the object. With the trainer as owner, each process that was
handed it by another would leave some 0.3 kB in the trainer for each version, as Ray 2.60 keeps books of those
that borrow (0.4 kB were measured with Ray alone, and 0.002 kB this way).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray

from parllel.buffers.tree import buffer_leaves
from parllel.distributed.rollouts.on_ray.answers import LATE_S, answer
from parllel.types import State


@dataclass(frozen=True)
class Publication:
    """Version, reference and fingerprint as one value, so that none can belong to other weights.

    Attributes:
        version: of the weights.
        fingerprint: of their bits.
        reference: in a tuple of one: Ray replaces a reference at top level by what it leads to. It is the
            manager's: the object is there as long as the manager, or a process that has this, keeps it.
    """

    version: int
    fingerprint: str
    reference: tuple[Any]

    @classmethod
    def of(cls, weights: State, version: int, fingerprint: str) -> Publication:
        """Put weights into the object store, once for all workers.

        fingerprint: of the weights as the trainer has them.
        """
        return cls(version, fingerprint, (ray.put(weights),))

    def fetch(self) -> State:
        """Return the weights as views of the object store, read-only: copy them and drop them.

        Raises:
            ValueError: if they are not those that were published.
        """
        weights: State = answer(self.reference[0], "RolloutWorkerWrapper", "weights", LATE_S)
        if (found := fingerprint_of(weights)) != self.fingerprint:
            raise ValueError(
                f"weights of version {self.version}: expected the fingerprint {self.fingerprint}, got {found}"
            )
        return weights


def fingerprint_of(weights: State) -> str:
    """Return a checksum of names, shapes, dtypes and bits."""
    # Each worker computes it before it can act by the weights. It is to find mistakes, not forgeries, and a
    # cryptographic digest of ten megabytes takes five times as long.
    checksum = 0
    for path, leaf in buffer_leaves(weights):
        array = np.ascontiguousarray(leaf)
        checksum = zlib.crc32(f"{path} {array.dtype.str} {array.shape};".encode(), checksum)
        checksum = zlib.crc32(array.data, checksum)
    return f"{checksum:08x}"
