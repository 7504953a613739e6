"""Transforms that do not commute, compute simple numbers, and record their calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parllel.buffers.allocation import Field
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.transforms.transform import BatchTransform, StepTransform
from parllel.types import State, Tree


class _Affine:
    """Multiply by `scale`, then add `shift + drift * number of batches`."""

    def __init__(self, scale: float, shift: float, drift: float) -> None:
        self.scale, self.shift, self.drift = scale, shift, drift
        self.batches = 0

    def __call__(self, array: Any) -> Any:
        # Rounded once, at the end, as in the plain loop that results are compared with.
        moved = np.asarray(array, np.float64) * self.scale + self.shift + self.drift * self.batches
        return moved.astype(np.float32)


class RecordingStepTransform(StepTransform):
    """Write `observation * scale + shift + drift * batches`, and record each call.

    `batches`, the only state, counts what `end_batch` was told; so `drift` shows whether a statistic moved
    within a batch, and two of these with different scales and shifts show their order.

    Args:
        name: of the transform in `calls`.
        source, target: fields read and written, trees with the same leaves; the target is float32.
        scale, shift, drift: the numbers above.
        calls: list to note calls in: `(name, "step", t)`, `(name, "final", N)`, `(name, "end")`.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str = "env.observation",
        target: str = "agent.observation",
        scale: float = 1.0,
        shift: float = 0.0,
        drift: float = 0.0,
        calls: list[Any] | None = None,
    ) -> None:
        self.name, self.source, self.target = name, source, target
        self.reads = (source,)
        self.affine = _Affine(scale, shift, drift)
        self.calls: list[Any] = [] if calls is None else calls

    def fields(self, samples: Samples) -> Mapping[str, Tree]:
        """Declare the target, with the shapes of the source."""
        source = field_at(samples, self.source)
        return {
            self.target: buffer_map(
                lambda leaf: Field(np.zeros(leaf.shape[2:], np.float32), padding=1), source
            )
        }

    def transform_step(self, samples: Samples, t: int, columns: slice) -> None:
        """Write row `t`."""
        self.calls.append((self.name, "step", t))
        # Looked up in each call, so that a view of another batch cannot be the reason of a failure.
        source, target = field_at(samples, self.source), field_at(samples, self.target)
        pairs = zip(buffer_leaves(source), buffer_leaves(target), strict=True)
        for (_, read), (_, written) in pairs:
            written[t, columns] = self.affine(read[t, columns])

    def transform_final(self, observation: Tree) -> Tree:
        """Return transformed final observations."""
        leaves = [leaf for _, leaf in buffer_leaves(observation)]
        self.calls.append((self.name, "final", len(leaves[0])))
        return buffer_map(self.affine, observation)

    def end_batch(self, samples: Samples) -> None:
        """Count the batch."""
        self.calls.append((self.name, "end"))
        self.affine.batches += 1

    @property
    def stats(self) -> dict[str, Any]:
        """Return `batches`."""
        return {"batches": self.affine.batches}

    def state(self) -> State:
        """Return `batches`."""
        return {"batches": self.affine.batches}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self.affine.batches = state["batches"]


class RecordingBatchTransform(BatchTransform):
    """Write `source * scale + shift` of a field [T, B] into another, and record each call.

    Args:
        name: of the transform in `calls`: `(name, "batch")`.
        source, target: paths of the fields.
        scale, shift: the numbers above.
        calls: list to note calls in.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str = "env.reward",
        target: str = "env.scaled_reward",
        scale: float = 1.0,
        shift: float = 0.0,
        calls: list[Any] | None = None,
    ) -> None:
        self.name, self.source, self.target = name, source, target
        self.reads = (source,)
        self.affine = _Affine(scale, shift, 0.0)
        self.calls: list[Any] = [] if calls is None else calls

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare the target."""
        return {self.target: Field(np.float32(0))}

    def transform_batch(self, samples: Samples) -> None:
        """Write the batch."""
        self.calls.append((self.name, "batch"))
        source, target = field_at(samples, self.source), field_at(samples, self.target)
        target[...] = self.affine(source)
