"""Apply step transforms to observations that are in no batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parllel.buffers.tree import buffer_leaves
from parllel.transforms.naming import note_transform
from parllel.transforms.transform import StepTransform
from parllel.types import Tree


@dataclass(frozen=True)
class FinalTransforms:
    """Return observations [N, ...] after `transform_final` of each transform, as the agent sees them.

    Attributes:
        transforms: in the order in which they are applied.
        shapes: of one cell of what must come out, by path; None if that is not known.

    Raises, when called:
        TypeError, ValueError: if something else comes out; names the transforms.
    """

    transforms: Sequence[StepTransform]
    shapes: Mapping[str, tuple[int, ...]] | None = None

    def __call__(self, observation: Tree) -> Tree:
        """Return a tree; the observation itself if there are no transforms."""
        if not self.transforms:
            return observation
        # Taken before the first transform, which may return anything.
        n = len(next(leaf for _, leaf in buffer_leaves(observation)))
        for transform in self.transforms:
            try:
                observation = transform.transform_final(observation)
            except Exception as error:
                note_transform(error, transform, "transform_final")
                raise
            # A forgotten return, which the next transform would be blamed for.
            if observation is None:
                _check([transform], None, self.shapes, n)
        _check(self.transforms, observation, self.shapes, n)
        return observation


def _check(
    transforms: Sequence[StepTransform],
    observation: Tree,
    shapes: Mapping[str, tuple[int, ...]] | None,
    n: int,
) -> None:
    """Raise ValueError, or TypeError for None, unless `observation` has the shapes [n, *shape]."""
    found = {path: np.shape(leaf) for path, leaf in buffer_leaves(observation)}
    expected = None if shapes is None else {path: (n, *shape) for path, shape in shapes.items()}
    if found and expected in (None, found):
        return
    names = ", ".join(f"{type(transform).__name__}.transform_final" for transform in transforms)
    wanted = "an observation" if expected is None else _described(expected)
    message = f"{names}: expected {wanted}, got {_described(found) if found else None}"
    raise (ValueError if found else TypeError)(message)


def _described(shapes: Mapping[str, tuple[int, ...]]) -> str:
    if shapes.keys() == {""}:
        return f"an array {list(shapes[''])}"
    return ", ".join(f"{path} {list(shape)}" for path, shape in shapes.items())
