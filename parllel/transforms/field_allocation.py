"""Allocate the fields that transforms write."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from parllel.arrays.array import Array
from parllel.buffers.allocation import add_fields, insert_field
from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.errors import add_note
from parllel.transforms.field_checks import (
    RAW,
    SEEN,
    declared_paths,
    duplicate_field_message,
    fields_of,
    identities_below,
    missing_field,
    reads_of,
    writer_of,
    written_later,
)
from parllel.transforms.transform import BatchTransform, StepTransform, Transform, naming
from parllel.types import BatchSpec, Tree


def add_transform_fields(
    samples: Samples, transforms: Iterable[Transform], batch_spec: BatchSpec, **memory: Any
) -> Samples:
    """Return `samples` with the fields that the transforms write, each marked with its writer's name.

    If a transform writes only a part of `agent.observation`, such as `agent.observation.speed`, the
    other parts are taken from `env.observation`.

    Args:
        transforms: the transforms, in the order in which they run within their kind. Step
            transforms run first.
        memory: allocation options, as for `add_fields`.

    Raises:
        ValueError: if a transform reads a field that does not exist or that a later transform
            writes; if it writes an input of the agent whose field has no padding for row T; or for
            the reasons given in `add_fields`.
        TypeError: if a transform is not a Transform, or its `fields` does not return a dict.
    """
    transforms = list(transforms)
    for transform in transforms:
        if not isinstance(transform, Transform):
            a_class = isinstance(transform, type)
            came = f"the class {transform.__name__}; call it" if a_class else repr(transform)
            raise TypeError(f"transforms: expected transforms, got {came}")
    # The order in which a sampler runs them; `sorted` keeps the order within each kind.
    ordered = sorted(transforms, key=lambda transform: isinstance(transform, BatchTransform))
    # One after the other: `fields` of a transform may take its shapes from what an earlier one writes.
    for i, transform in enumerate(ordered):
        _check_reads(transform, ordered[i + 1 :], samples)
        fields = fields_of(transform, samples)
        name = type(transform).__name__
        _check_unwritten(samples, fields, name)
        with naming(transform, "fields"):
            # A part of what the agent sees takes the place of the same part of the raw observation.
            for path in fields:
                if path.startswith(f"{SEEN}."):
                    samples = _with_room_at(samples, path)
            samples = add_fields(samples, fields, batch_spec, **memory)
        for path in fields:
            for at, leaf in buffer_leaves(field_at(samples, path), path):
                _mark(leaf, at, name)
    return samples


def _check_unwritten(samples: Samples, fields: Iterable[str], name: str) -> None:
    for path in fields:
        try:
            field = field_at(samples, path)
        except ValueError:  # there is no such field, as there should not be
            continue
        # `add_fields` would refuse the path too, but knows neither of the two transforms.
        for at, leaf in buffer_leaves(field, path):
            if writer := writer_of(leaf):
                raise ValueError(duplicate_field_message(at, writer, name))


def _mark(leaf: Array, path: str, writer: str) -> None:
    """Store the name of an array's writer; raise ValueError if the agent sees it and it has no row T."""
    if _overlap(path, SEEN) and not leaf.padding:
        raise ValueError(
            f"{writer}: {path}: expected padding=1, as in Field(example, padding=1), for row T: the "
            "observation that follows the batch"
        )
    # On the block, which all views of the array share: indexing must not lose the name.
    leaf.block.writer = writer


def seen_observation_example(
    samples: Samples, transforms: Iterable[Transform], batch_spec: BatchSpec, observation: Tree
) -> Tree:
    """Return an example of one cell of `agent.observation`, a tree of numpy arrays.

    samples: the fields that environments write. The agent's fields are not known yet, so transforms
        that read them are left out.
    observation: example of one cell of `env.observation`. Parts that no transform writes are taken
        from it, and the other parts are zeros.
    """
    for transform in transforms:
        if isinstance(transform, StepTransform):
            with contextlib.suppress(ValueError):  # raised again when the fields are allocated
                samples = add_transform_fields(samples, [transform], batch_spec)
    if "observation" not in samples.agent._fields:
        return observation
    raw = identities_below(samples, RAW)
    examples = dict(buffer_leaves(observation, RAW))

    def example_at(leaf: Array) -> Any:
        path = raw.get(leaf.block.key)
        return np.zeros(leaf.shape[2:], leaf.dtype) if path is None else examples[path]

    return buffer_map(example_at, samples.agent.observation)


def note_seen_observation(
    error: Exception, samples: Samples, transforms: Iterable[Transform], seen: Tree, raw: Tree
) -> None:
    """Add a note to an agent's error that lists the transforms that write the agent's inputs, if any.

    samples: the argument of `seen_observation_example`, which returned `seen`.
    raw: example of `env.observation`.
    """
    writers = [
        type(transform).__name__
        for transform in transforms
        if any(_overlap(path, SEEN) for path in _tried_paths(transform, samples))
    ]
    if writers:
        add_note(
            error,
            f"{SEEN} is {_shapes(seen)}, as {' and '.join(writers)}.fields says; {RAW} is {_shapes(raw)}",
        )


def _shapes(tree: Tree) -> str:
    leaves = [(path, np.asarray(leaf)) for path, leaf in buffer_leaves(tree)]
    return ", ".join(f"{path} {leaf.dtype} {leaf.shape}".strip() for path, leaf in leaves)


def _check_reads(transform: Transform, later: Sequence[Transform], samples: Samples) -> None:
    name = type(transform).__name__
    for path in reads_of(transform):
        try:
            field_at(samples, path)
        except ValueError as error:
            for other in later:
                if any(_overlap(path, written) for written in _tried_paths(other, samples)):
                    raise ValueError(written_later(name, path, type(other).__name__)) from None
            # What the agent sees is added after all transforms, if none of them writes it.
            if not _overlap(path, SEEN):
                raise ValueError(missing_field(name, path, error)) from None


def _tried_paths(transform: Transform, samples: Samples) -> list[str]:
    try:
        return declared_paths(transform, samples)
    except ValueError:  # its `fields` looks at a field that does not exist yet
        return []


def _overlap(path: str, other: str) -> bool:
    # With a dot at the end, so that `agent.observation_mask` is no part of `agent.observation`.
    one, two = f"{path}.", f"{other}."
    return one.startswith(two) or two.startswith(one)


def _with_room_at(samples: Samples, path: str) -> Samples:
    """Return samples in which `path`, a part of what the agent sees, can be inserted.

    At first the agent sees the arrays of `env.observation` themselves; of these the one at `path` is removed.
    """
    raw = samples.env.observation
    if isinstance(raw, Array):
        raise ValueError(
            f"{path}: expected a transform that writes {SEEN}, because {RAW} is one array without "
            "parts"
        )
    if "observation" not in samples.agent._fields:
        samples = insert_field(samples, SEEN, buffer_map(lambda leaf: leaf, raw))
    there, shown = identities_below(samples, path), identities_below(samples, RAW)
    # Not if another transform has written it: `add_fields` then refuses the second one.
    return _replaced(samples, path, None) if there and there.keys() <= shown.keys() else samples


def _replaced(node: NamedArrayTuple, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    return node._replace(**{name: _replaced(getattr(node, name), rest, value) if rest else value})
