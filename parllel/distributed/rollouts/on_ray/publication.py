"""The weights of one version in Ray's object store, from which workers fetch them.

    trainer   weights, as an argument  -->  RolloutManager, which puts them and keeps the reference
    workers   the reference  <--  RolloutManager, in answer to a report

The manager puts the weights because the process that distributes a reference should own the object. With the
trainer as owner, each borrowing process would leave some 0.3 kB in the trainer for each version, as Ray 2.60
keeps records of borrowers (0.4 kB were measured with Ray alone, and 0.002 kB this way).
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
    """Version, reference and fingerprint of weights, in one immutable value.

    Attributes:
        version: version of the weights.
        fingerprint: checksum of the weights.
        reference: the reference in a tuple, because Ray would resolve a reference at top level. The
            manager owns the object, which exists as long as the manager or another process keeps
            the reference.
    """

    version: int
    fingerprint: str
    reference: tuple[Any]

    @classmethod
    def of(cls, weights: State, version: int, fingerprint: str) -> Publication:
        """Put weights into the object store, once for all workers.

        fingerprint: checksum that the trainer computed.
        """
        return cls(version, fingerprint, (ray.put(weights),))

    def fetch(self) -> State:
        """Return the weights as read-only views of the object store.

        Copy them, and then drop the views.

        Raises:
            ValueError: if their checksum differs from the trainer's.
        """
        # With a time-out, because an object whose owner is gone may never arrive.
        weights: State = answer(self.reference[0], "RolloutWorkerWrapper", "weights", LATE_S)
        if (found := fingerprint_of(weights)) != self.fingerprint:
            raise ValueError(
                f"weights of version {self.version}: expected the fingerprint {self.fingerprint}, got {found}"
            )
        return weights


def fingerprint_of(weights: State) -> str:
    """Return a checksum of names, shapes, dtypes and bits."""
    # Computed by every worker before it uses the weights. It detects mistakes, not forgeries; a cryptographic
    # digest of ten megabytes takes five times as long.
    checksum = 0
    for path, leaf in buffer_leaves(weights):
        array = np.ascontiguousarray(leaf)
        checksum = zlib.crc32(f"{path} {array.dtype.str} {array.shape};".encode(), checksum)
        # Releases the interpreter lock for large arrays, so the worker's thread goes on.
        checksum = zlib.crc32(array.data, checksum)
    return f"{checksum:08x}"
