"""Allocation: one place decides which kind of Array each element of a buffer gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from parllel.arrays.arena import Arena, Storage, aligned
from parllel.arrays.array import Array
from parllel.arrays.frame_block import stored_nbytes
from parllel.arrays.kinds import array_class
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.named_tuple import NamedArrayTuple, NamedTuple
from parllel.buffers.path_rules import DtypeRules, PathRules, StorageRules
from parllel.buffers.paths import dotted, parts_of
from parllel.buffers.tree import buffer_leaves
from parllel.types import BatchSpec, Tree

# Half the memory traffic, and what networks compute in; writing casts. Integers would wrap.
NARROWED = {np.dtype(np.float64): np.dtype(np.float32)}


@dataclass(frozen=True)
class Field:
    """One field to allocate.

    Attributes:
        example: a scalar or array of one cell, without the T and B dimensions.
        padding: rows wanted before the first and after the last row.
        dtype: type to store; None takes the example's, float64 as float32.
        frames: how many frames the example is a stack of, [frames, ...], to store each once (see
            `LazyFramesArray`); 0 stores it as it is.
    """

    example: Any
    padding: int = 0
    dtype: DTypeLike | None = None
    frames: int = 0

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The dtype that the Array gets."""
        if self.dtype is not None:
            return np.dtype(self.dtype)
        dtype = np.asarray(self.example).dtype
        return NARROWED.get(dtype, dtype)


def allocate(
    examples: Tree,
    batch_spec: BatchSpec,
    *,
    storage: Storage | Mapping[str, Storage] | StorageRules = "local",
    dtype: Mapping[str, DTypeLike] | DtypeRules | None = None,
    padding: int = 0,
    batches: int = 1,
    switching: bool = False,
    at: str = "",
) -> Tree:
    """Return Arrays `[T, B, ...]` for a tree of examples, zeroed, in one arena per storage.

    Args:
        examples: leaves are values of one cell, Fields, or Arrays whose cell shape, dtype and
            padding are taken over. Dicts, tuples and NamedTuples become NamedArrayTuples, other
            node classes (Samples, ...) are kept. None stays None.
        batch_spec: T and B.
        storage: for all, or by path: a mapping of patterns such as `{"env.*": "managed"}`, of which
            the last that fits wins; what fits none is local. Where several calls make one buffer, give
            all of them one StorageRules, and call its `check_used` in the end.
        dtype: types by path, in the same way, such as `{"env.reward": np.float64}`; they win over Fields.
        padding: for leaves that do not say it themselves.
        batches: how many batches fit before a rotation starts again (a replay has many).
        switching: allocate arrays with two sides (or `batches`, if that is more) that `rotate` changes over.
        at: path of the tree in the buffer that it will be part of, for the rules.

    Raises:
        ValueError: for object dtypes, types that the example does not fit, too much padding, or invalid
            names, naming the path; for an unknown storage, or a pattern that fits nothing, naming the
            pattern; for fewer batches than one.
        InsufficientMemoryError: if the memory is not there.
    """
    if not isinstance(batches, (int, np.integer)) or batches < 1:
        raise ValueError(f"batches: expected an int of at least 1, got {batches!r}")
    rules, dtypes = StorageRules.of(storage), DtypeRules.of(dtype)
    fields = _fields(examples, padding, dtypes, at)
    kinds = {path: rules.at(path) for path in fields}
    # Before memory is taken: a misspelled rule would leave a field in local memory, unseen by workers.
    _check_own((rules, storage), (dtypes, dtype))
    batches = max(2, int(batches)) if switching else int(batches)
    arenas = _arenas(fields, kinds, batch_spec, batches, switching)
    arrays = {
        path: _array(field, arenas[kinds[path]], batch_spec, batches, path, switching)
        for path, field in fields.items()
    }
    return _built(examples, arrays, at)


def check_names(tree: Tree, path: str = "") -> None:
    """Raise ValueError for a key of a dict in `tree` that cannot be the name of a field."""
    for name, value in (parts_of(tree) or {}).items():
        below = dotted((str(name),), path)
        check_name(name, below, NamedArrayTuple)
        check_names(value, below)


def check_name(name: Any, path: str, cls: type[NamedTuple]) -> None:
    """Raise ValueError unless a key can be the name of a field of a node of `cls`."""
    if not isinstance(name, str):
        raise ValueError(
            f"{path}: expected a string as the name of a field, got the key {name!r}; rename the key"
        )
    why = None
    if "." in name:
        why = ", as dots separate the names in a path"
    elif not name:
        why = ", an empty name"
    elif name.startswith("__"):
        why = ", as two underscores begin names of Python's own"
    # The field could not be reached by its name, or would hide a method of the node.
    elif hasattr(cls, name):
        why = ", as the node itself has something of that name"
    if why is not None:
        raise ValueError(f"{path}: a field cannot have the name {name!r}{why}; rename the key")


def add_fields(
    tree: NamedArrayTuple,
    fields: Mapping[str, Tree],
    batch_spec: BatchSpec,
    *,
    storage: Storage | Mapping[str, Storage] | StorageRules = "local",
    dtype: Mapping[str, DTypeLike] | DtypeRules | None = None,
    batches: int = 1,
    switching: bool = False,
) -> Any:
    """Return `tree` with newly allocated fields at dotted paths; the old Arrays are shared.

    Raises:
        ValueError: if a path exists already, or its parent does not, and as `allocate` does.
    """
    rules, dtypes = StorageRules.of(storage), DtypeRules.of(dtype)
    options: Any = {"storage": rules, "dtype": dtypes, "batches": batches, "switching": switching}
    # One after the other: a later field may belong into a node that an earlier one made.
    for path, field in fields.items():
        tree = insert_field(tree, path, allocate(field, batch_spec, **options, at=path))
    _check_own((rules, storage), (dtypes, dtype))
    return tree


def insert_field(tree: NamedArrayTuple, path: str, value: Any) -> Any:
    """Return `tree` with `value` at a dotted path; ValueError if there is something already."""
    name, _, rest = path.partition(".")
    there = tree._asdict().get(name)
    if rest:
        if not isinstance(there, NamedArrayTuple):
            raise ValueError(f"no node {name!r} to add {path!r} to; there are {list(tree._fields)}")
        return tree._replace(**{name: insert_field(there, rest, value)})
    # Two transforms that write one field would depend on their order.
    if there is not None:
        raise ValueError(f"field {path!r} exists already; every field has one writer")
    return tree._replace(**{name: value})


def _check_own(*pairs: tuple[PathRules[Any], Any]) -> None:
    """Refuse rules that fit no path; the caller checks those that it made for several calls."""
    for rules, given in pairs:
        if rules is not given:
            rules.check_used()


def _built(node: Tree, arrays: Mapping[str, Array], path: str) -> Tree:
    """Return the tree of the arrays in the nodes of the examples."""
    if node is None:
        return None
    if path in arrays:
        return arrays[path]
    cls = type(node) if isinstance(node, NamedArrayTuple) else NamedArrayTuple
    built = {}
    for name, value in (parts_of(node) or {}).items():
        below = dotted((str(name),), path)
        check_name(name, below, cls)
        built[name] = _built(value, arrays, below)
    return cls._make(built)


def _fields(examples: Tree, padding: int, dtypes: DtypeRules, at: str) -> dict[str, Field]:
    """Return what to allocate, by path."""
    fields: dict[str, Field] = {}
    for path, leaf in buffer_leaves(examples, at):
        # A key with a dot in it can make the path of another.
        if path in fields:
            raise ValueError(f"{path}: two fields have this path; rename a key of the space")
        field = _field(leaf, padding, path)
        fields[path] = replace(field, dtype=dtypes.stored(path, field.stored_dtype))
    return fields


def _field(leaf: Any, padding: int, path: str) -> Field:
    if isinstance(leaf, Field):
        field = leaf
    elif isinstance(leaf, Array):
        # A buffer as example: [T, B, ...], kept as it is but for the size of the batch.
        frames = leaf.frames if isinstance(leaf, LazyFramesArray) else 0
        field = Field(np.zeros(leaf.shape[2:], leaf.dtype), leaf.padding, leaf.dtype, frames)
    else:
        field = Field(leaf, padding)
    try:
        dtype = field.stored_dtype
    except TypeError as error:
        raise ValueError(f"{path or 'buffer'}: dtype: {error}") from None
    if dtype.hasobject or dtype.kind in "USmM":
        raise ValueError(
            f"{path or 'buffer'}: expected numbers or booleans as example, got {field.example!r}"
        )
    if not isinstance(field.padding, (int, np.integer)):
        raise ValueError(f"{path or 'buffer'}: padding: expected an int, got {field.padding!r}")
    if field.frames and np.shape(field.example)[:1] != (field.frames,):
        raise ValueError(
            f"{path or 'buffer'}: frames: expected a stack of {field.frames} frames as example, got "
            f"shape {np.shape(field.example)}"
        )
    return field


def _array(
    field: Field, arena: Arena, batch_spec: BatchSpec, batches: int, path: str, switching: bool
) -> Array:
    shape = (*batch_spec.shape, *np.shape(field.example))
    cls = array_class(arena.storage, rotating=field.padding > 0, switching=switching)
    if field.frames:
        if switching:
            raise ValueError(
                f"{path or 'buffer'}: frames: stacks cannot be stored in switching arrays"
            )
        # One class for all storages, which it takes from the arena.
        cls = LazyFramesArray
    try:
        return cls(
            shape,
            field.stored_dtype,
            padding=field.padding,
            full_size=batch_spec.T * batches,
            arena=arena,
        )
    except ValueError as error:
        raise ValueError(f"{path or 'buffer'}: {error}") from None


def _arenas(
    fields: Mapping[str, Field],
    kinds: Mapping[str, Storage],
    batch_spec: BatchSpec,
    batches: int,
    switching: bool,
) -> dict[Storage, Arena]:
    sizes: dict[Storage, int] = {}
    for path, field in fields.items():
        # Each side of a switching array has padding of its own.
        padding = max(int(field.padding), 0)
        rows = batch_spec.T * batches + 2 * padding * (batches if switching else 1)
        shape = (rows, batch_spec.B, *np.shape(field.example))
        itemsize = field.stored_dtype.itemsize
        # As the arena counts, or its last pieces would not fit.
        nbytes = stored_nbytes(shape, itemsize) if field.frames else math.prod(shape) * itemsize
        sizes[kinds[path]] = sizes.get(kinds[path], 0) + aligned(nbytes)
    # All fields of a storage in one arena: one descriptor goes to each worker, however many fields there are.
    return {kind: Arena(max(size, 1), kind) for kind, size in sizes.items()}
