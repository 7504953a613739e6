"""Apply step transforms to final observations, as they were applied to the agent's observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.transforms.field_checks import (
    RAW,
    SEEN,
    check_order,
    declared_paths,
    identities_below,
    implements_final,
    missing_final_error,
    uses_of,
    writer_of,
)
from parllel.transforms.transform import StepTransform, note_transform
from parllel.types import Tree


class FinalChain:
    """The step transforms on which the agent's inputs depend, directly or through other transforms.

    A transform that declares no fields is included if it implements `transform_final`.

    Args:
        samples: the samples of training, whose `agent.observation` is what the agent sees.
        step_transforms: the step transforms, in order.

    Attributes:
        transforms: in the order in which their `transform_final` is applied.
        as_seen: a FinalTransforms that applies them; it holds no samples.

    Raises:
        TypeError: if one of these transforms does not implement `transform_final`.
        ValueError: if it cannot be determined whether a transform belongs to the chain.
    """

    def __init__(self, samples: Samples, step_transforms: Sequence[StepTransform]) -> None:
        self._samples = samples
        self._leaves = dict(buffer_leaves(samples))
        self._steps = list(step_transforms)
        self._uses = [uses_of(one, samples, self._leaves) for one in self._steps]
        self._raw = identities_below(samples, RAW)
        # By identity, the fields that the chain has to make: path, and name of the transform that reads it
        # (None for the agent). What environments write themselves need not be made.
        self._wanted: dict[Any, tuple[str, str | None]] = {
            identity: (path, None)
            for identity, path in identities_below(samples, SEEN).items()
            if identity not in self._raw
        }
        self.transforms = self._found()[::-1]
        shapes = {
            path.removeprefix(f"{SEEN}.").removeprefix(SEEN): leaf.shape[2:]
            for path, leaf in self._leaves.items()
            if _is_seen(path)
        }
        self.as_seen = FinalTransforms(self.transforms, shapes)

    def _found(self) -> list[StepTransform]:
        found: list[StepTransform] = []
        undeclared: str | None = None  # a transform of the chain without `reads`
        # From the last to the first: a transform belongs to the chain if what it writes is wanted by the
        # agent or by a later transform of the chain.
        for transform, uses in zip(self._steps[::-1], self._uses[::-1], strict=True):
            wanted = [self._wanted[key] for key in uses.writes.values() if key in self._wanted]
            says = implements_final(transform)
            if wanted:
                if not says:
                    raise missing_final_error(uses.name, *wanted[0])
                found.append(transform)
                if uses.reads is None:
                    undeclared = uses.name
                for path, identity in (uses.reads or {}).items():
                    # The first reader is kept, the one nearest to the agent: errors name it.
                    self._wanted.setdefault(identity, (path, uses.name))
            elif says and not uses.writes:  # without a field of its own it may work in place
                found.append(transform)
            elif says and undeclared is not None:
                raise ValueError(
                    f"{undeclared}: reads: expected the paths that it reads, such as reads = "
                    f"({RAW!r},), which decide whether {uses.name}.transform_final applies to the "
                    "agent's observations"
                )
        return found

    def check_complete(self) -> None:
        """Raise ValueError unless `step_transforms` make exactly the fields that the agent sees."""
        check_order(self._uses)
        given = {identity for uses in self._uses for identity in uses.writes.values()}
        for identity, (path, reader) in self._wanted.items():
            writer = writer_of(self._leaves[path])
            # A field without a writer that a transform reads is raw data, which no transform has to make.
            if identity not in given and (writer or reader is None):
                raise ValueError(
                    f"step_transforms: expected the transform that writes {path} in "
                    f"training{', ' + writer if writer else ''}, got "
                    f"{[uses.name for uses in self._uses]}; pass the step transforms of training"
                )
        # What evaluation transforms although training does not would be new to the agent.
        for uses in self._uses:
            for path, identity in uses.writes.items():
                if identity in self._raw or (identity is None and _is_seen(path)):
                    raise ValueError(
                        f"{uses.name}: writes {path}, but the agent is trained on {RAW} there; "
                        "pass the step transforms of training"
                    )


def check_finals_are_known(samples: Samples, step_transforms: Sequence[StepTransform]) -> None:
    """Raise TypeError for a transform that writes an input of the agent but has no `transform_final`.

    samples: any buffer with which transforms can be asked for their fields, since the buffer of
        training may not be known yet.
    """
    for transform in step_transforms:
        if implements_final(transform):
            continue
        try:
            paths = declared_paths(transform, samples)
        except ValueError:  # it looks at a field that exists only in training
            continue
        for path in paths:
            if _is_seen(path):
                raise missing_final_error(type(transform).__name__, path, None)


def _is_seen(path: str) -> bool:
    return f"{path}.".startswith(f"{SEEN}.")


@dataclass(frozen=True)
class FinalTransforms:
    """Applies each transform's `transform_final` to observations [N, ...], as the agent sees them.

    Attributes:
        transforms: in the order in which they are applied.
        shapes: expected shape of one cell of the result, keyed by path; None if unknown.

    Raises, when called:
        TypeError, ValueError: if the result differs. The message names the transforms.
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
