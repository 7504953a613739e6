"""Whether transforms, the fields that were allocated for them, and their order fit each other.

Fields are compared by the memory behind them, since one array may be seen under two paths:
`agent.observation` is `env.observation` itself where no transform writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parllel.arrays import Array
from parllel.buffers import Samples, buffer_leaves, field_at
from parllel.errors import add_note
from parllel.transforms.transform import StepTransform, Transform

SEEN, RAW = "agent.observation", "env.observation"
# Declared by transforms, which read it; the handler writes it.
WRITTEN_BY_HANDLER = ("agent.final_value",)


@dataclass(frozen=True)
class Uses:
    """What a transform declares.

    Attributes:
        name: of its class.
        writes: identity of the memory behind each leaf that it writes, by path; None where there is none.
        reads: the same of what it reads; None if it does not say.
    """

    name: str
    writes: dict[str, Any]
    reads: dict[str, Any] | None


def check_fields(samples: Samples, transforms: Sequence[Transform]) -> None:
    """Compare a buffer with the transforms that are to work on it, in the order in which they run.

    Raises:
        ValueError: if a transform writes a field that was not allocated for it, or one that another
            writes as well; if a field was allocated for a transform that is not there; if a transform
            reads a field that is not there, or that a later one writes. Names transforms and field.
        TypeError: for `reads` that is a string.
    """
    leaves = dict(buffer_leaves(samples))
    uses = [uses_of(transform, samples, leaves) for transform in transforms]
    writers: dict[Any, str] = {}
    for one in uses:
        for path, identity in one.writes.items():
            _check_allocated(one.name, path, leaves)
            if identity in writers:
                raise ValueError(written_twice(path, writers[identity], one.name))
            writers[identity] = one.name
    for path, leaf in leaves.items():
        if writer_of(leaf) and _identity(leaf) not in writers:
            raise ValueError(
                f"samples: {path} was allocated for {writer_of(leaf)}, which the sampler was not given; "
                "give it the transforms that allocate_samples was given"
            )
    check_order(uses)


def check_order(uses: Sequence[Uses]) -> None:
    """Raise ValueError if a transform reads what a later one writes: it would read the last batch."""
    for i, reader in enumerate(uses):
        for path, identity in (reader.reads or {}).items():
            for writer in uses[i + 1 :]:
                written = {
                    identity
                    for path, identity in writer.writes.items()
                    if not path.startswith(WRITTEN_BY_HANDLER)
                }
                if identity in written:
                    raise ValueError(written_later(reader.name, path, writer.name))


def written_later(reader: str, path: str, writer: str) -> str:
    """Return what is wrong with an order."""
    return (
        f"{reader}: reads {path}, which {writer} writes later, so it would read the values of the batch "
        f"before; give {writer} first (step transforms run before batch transforms)"
    )


def written_twice(path: str, first: str, second: str) -> str:
    """Return what is wrong with two transforms that write one field."""
    return (
        f"{path}: two transforms write it, {first} and {second}; to chain them, let {first} write a field of "
        f"its own, such as agent.halfway, that {second} reads"
    )


def uses_of(transform: Transform, samples: Samples, leaves: Mapping[str, Any]) -> Uses:
    """Return what a transform reads and writes of `samples`, of which `leaves` are the leaves."""
    name = type(transform).__name__
    writes = {
        path: _identity(leaves[path]) if path in leaves else None
        for path in declared_paths(transform, samples)
    }
    reads = None
    if transform.reads is not None:
        reads = {}
        for path in reads_of(transform):
            try:
                field = field_at(samples, path)
            except ValueError as error:
                raise ValueError(f"{name}: reads: {error}") from None
            reads.update({at: _identity(leaf) for at, leaf in buffer_leaves(field, path)})
    return Uses(name, writes, reads)


def declared_paths(transform: Transform, samples: Samples) -> list[str]:
    """Return the paths of the leaves that a transform writes."""
    fields = fields_of(transform, samples)
    return [path for at, field in fields.items() for path, _ in buffer_leaves(field, at)]


def fields_of(transform: Transform, samples: Samples) -> Mapping[str, Any]:
    """Return the fields that a transform declares; an error says which transform it was."""
    with naming(transform):
        fields = transform.fields(samples)
    if not isinstance(fields, Mapping):
        name = type(transform).__name__
        raise TypeError(f"{name}: fields: expected a dict by path, got {fields!r}")
    return fields


@contextmanager
def naming(transform: Transform) -> Iterator[None]:
    """Add to an error whose fields it is about."""
    try:
        yield
    except Exception as error:
        add_note(error, f"in {type(transform).__name__}.fields")
        raise


def reads_of(transform: Transform) -> Sequence[str]:
    """Return the paths that a transform says it reads; TypeError for a string."""
    reads = () if transform.reads is None else transform.reads
    if isinstance(reads, str):
        raise TypeError(
            f"{type(transform).__name__}: reads: expected a tuple of paths, got {reads!r}; "
            f"write ({reads!r},)"
        )
    return reads


def says_what_finals_become(transform: StepTransform) -> bool:
    """Return whether a class overrides `transform_final`."""
    return type(transform).transform_final is not StepTransform.transform_final


def refuse_unknown_finals(name: str, path: str, reader: str | None) -> TypeError:
    """Return the error of a transform whose `transform_final` is missing."""
    whose = "which the agent sees" if reader is None else f"which {reader} reads"
    return TypeError(
        f"{name} writes {path}, {whose}, and does not say what a final observation becomes: implement "
        "transform_final(observation), which truncated episodes and evaluations go through"
    )


def writer_of(leaf: Any) -> str:
    """Return the name of the transform that a leaf was allocated for, or ""."""
    return leaf.block.writer if isinstance(leaf, Array) else ""


def identities_below(samples: Samples, path: str) -> dict[Any, str]:
    """Return the paths of the leaves of a field, by the identity of their memory; {} without it."""
    try:
        field = field_at(samples, path)
    except ValueError:
        return {}
    return {_identity(leaf): at for at, leaf in buffer_leaves(field, path)}


def _check_allocated(name: str, path: str, leaves: Mapping[str, Any]) -> None:
    hint = "give the transform to allocate_samples too"
    if path not in leaves:
        raise ValueError(f"{name}: writes {path}, which was not allocated for it; {hint}")
    leaf = leaves[path]
    if writer_of(leaf):
        return
    others = [at for at, other in leaves.items() if at != path and _is_same(other, leaf)]
    if others:
        raise ValueError(f"{name}: writes {path}, which in these samples is {others[0]}; {hint}")


def _is_same(leaf: Any, other: Any) -> bool:
    same: bool = _identity(leaf) == _identity(other)
    return same


def _identity(leaf: Any) -> Any:
    return leaf.block.key if isinstance(leaf, Array) else (id(leaf),)
