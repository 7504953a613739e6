"""Allocation of buffers: chooses the Array class of each field."""

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

# Networks compute in float32, and it halves the memory traffic. Integers are not narrowed: they would wrap.
NARROWED = {np.dtype(np.float64): np.dtype(np.float32)}


@dataclass(frozen=True)
class Field:
    """One field to allocate.

    Attributes:
        example: a scalar or array of one cell, without the T and B dimensions.
        padding: number of rows before the first row, and after the last.
        dtype: dtype to store; None uses the dtype of the example, with float32 in place of float64.
        frames: number of frames in the example, a stack [frames, ...], to store each frame once (see
            `LazyFramesArray`); 0 stores the example as it is.
        current_batch_only: whether a buffer of several batches holds this field only for the batch that
            was written last. The sides of switching arrays hold it each.
    """

    example: Any
    padding: int = 0
    dtype: DTypeLike | None = None
    frames: int = 0
    current_batch_only: bool = False

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """Dtype of the Array."""
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
    """Allocate zeroed Arrays `[T, B, ...]` for a tree of examples, in one arena per storage.

    Args:
        examples: a tree whose leaves are values of one cell, Fields, or Arrays whose cell shape,
            dtype and padding are reused. Dicts, tuples and NamedTuples become NamedArrayTuples;
            other node classes (Samples, ...) are kept. None stays None.
        batch_spec: T and B.
        storage: one storage for all fields, or a mapping of path patterns such as `{"env.*": "managed"}`.
            The last pattern that matches wins; unmatched fields are local. If several calls make one
            buffer, pass the same StorageRules to all of them and call its `check_used` at the end.
        dtype: a mapping of path patterns to dtypes, such as `{"env.reward": np.float64}`. It
            overrides the dtypes of Fields.
        padding: padding of the leaves that do not specify any.
        batches: number of batches before rotation starts over (a replay has many).
        switching: allocate arrays with two sides (or `batches`, if greater) that `rotate` switches between.
        at: path of the tree in the buffer that it will be part of, for the rules.

    Raises:
        ValueError: for object dtypes, dtypes that cannot hold the example, too much padding, or
            invalid names (the message names the path); for an unknown storage, or a pattern that
            matches nothing (the message names the pattern); if `batches` is less than one.
        InsufficientMemoryError: if there is not enough memory.
    """
    if not isinstance(batches, (int, np.integer)) or batches < 1:
        raise ValueError(f"batches: expected an int of at least 1, got {batches!r}")
    rules, dtypes = StorageRules.of(storage), DtypeRules.of(dtype)
    fields = _fields(examples, padding, dtypes, at)
    kinds = {path: rules.at(path) for path in fields}
    # Before anything is allocated: a misspelled rule would leave a field in local memory, unseen by workers.
    _check_own((rules, storage), (dtypes, dtype))
    batches = max(2, int(batches)) if switching else int(batches)
    arenas = _arenas(fields, kinds, batch_spec, batches, switching)
    arrays = {
        path: _array(field, arenas[kinds[path]], batch_spec, batches, path, switching)
        for path, field in fields.items()
    }
    return _built(examples, arrays, at)


def check_names(tree: Tree, path: str = "") -> None:
    """Raise ValueError if a dict in `tree` has a key that is not a valid field name."""
    for name, value in (parts_of(tree) or {}).items():
        below = dotted((str(name),), path)
        check_name(name, below, NamedArrayTuple)
        check_names(value, below)


def check_name(name: Any, path: str, cls: type[NamedTuple]) -> None:
    """Raise ValueError unless `name` is a valid field name in nodes of class `cls`."""
    if not isinstance(name, str):
        raise ValueError(
            f"{path}: expected the name of a field to be a string, got the key {name!r}; rename "
            "the key"
        )
    why = None
    if "." in name:
        why = ", because dots separate the names in a path"
    elif not name:
        why = ", which is empty"
    elif name.startswith("__"):
        why = ", because Python reserves names that begin with two underscores"
    # The field would be hidden by an attribute of the node, or hide it.
    elif hasattr(cls, name):
        why = ", because nodes have an attribute with this name"
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
        ValueError: if a path already exists, if its parent does not, or for the reasons given in
            `allocate`.
    """
    rules, dtypes = StorageRules.of(storage), DtypeRules.of(dtype)
    options: Any = {"storage": rules, "dtype": dtypes, "batches": batches, "switching": switching}
    # In order: a later field may belong to a node that an earlier one creates.
    for path, field in fields.items():
        tree = insert_field(tree, path, allocate(field, batch_spec, **options, at=path))
    _check_own((rules, storage), (dtypes, dtype))
    return tree


def insert_field(tree: NamedArrayTuple, path: str, value: Any) -> Any:
    """Return `tree` with `value` at a dotted path; ValueError if the path already exists."""
    name, _, rest = path.partition(".")
    there = tree._asdict().get(name)
    if rest:
        if not isinstance(there, NamedArrayTuple):
            raise ValueError(
                f"cannot add {path!r}: there is no node {name!r} among {list(tree._fields)}"
            )
        return tree._replace(**{name: insert_field(there, rest, value)})
    # The result of two transforms that write one field would depend on their order.
    if there is not None:
        raise ValueError(f"field {path!r} already exists; every field has one writer")
    return tree._replace(**{name: value})


def _check_own(*pairs: tuple[PathRules[Any], Any]) -> None:
    """Check rules created for this call for unused patterns. Callers check rules they share between calls."""
    for rules, given in pairs:
        if rules is not given:
            rules.check_used()


def _built(node: Tree, arrays: Mapping[str, Array], path: str) -> Tree:
    """Assemble the arrays into a tree with the structure of the examples."""
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
    """Return the fields to allocate, by path."""
    fields: dict[str, Field] = {}
    for path, leaf in buffer_leaves(examples, at):
        # A key that contains a dot can produce the path of another field.
        if path in fields:
            raise ValueError(f"{path}: two fields have this path; rename a key of the space")
        field = _field(leaf, padding, path)
        fields[path] = replace(field, dtype=dtypes.stored(path, field.stored_dtype))
    return fields


def _field(leaf: Any, padding: int, path: str) -> Field:
    if isinstance(leaf, Field):
        field = leaf
    elif isinstance(leaf, Array):
        # An Array as example, [T, B, ...]: everything but the sizes of batch and buffer is reused.
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
            f"{path or 'buffer'}: expected an example of numbers or booleans, got {field.example!r}"
        )
    if not isinstance(field.padding, (int, np.integer)):
        raise ValueError(f"{path or 'buffer'}: padding: expected an int, got {field.padding!r}")
    if field.frames and np.shape(field.example)[:1] != (field.frames,):
        raise ValueError(
            f"{path or 'buffer'}: frames: expected the example to be a stack of {field.frames} "
            f"frames, got shape {np.shape(field.example)}"
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
        # One class for all storages: it uses that of the arena.
        cls = LazyFramesArray
    try:
        return cls(
            shape,
            field.stored_dtype,
            padding=field.padding,
            full_size=batch_spec.T * _batches_of(field, batches, switching),
            arena=arena,
        )
    except ValueError as error:
        raise ValueError(f"{path or 'buffer'}: {error}") from None


def _batches_of(field: Field, batches: int, switching: bool) -> int:
    # One side of switching arrays is read while the other is written, so both have to exist.
    return 1 if field.current_batch_only and not switching else batches


def _arenas(
    fields: Mapping[str, Field],
    kinds: Mapping[str, Storage],
    batch_spec: BatchSpec,
    batches: int,
    switching: bool,
) -> dict[Storage, Arena]:
    sizes: dict[Storage, int] = {}
    for path, field in fields.items():
        # Each side of a switching array has its own padding.
        padding = max(int(field.padding), 0)
        n_batches = _batches_of(field, batches, switching)
        rows = batch_spec.T * n_batches + 2 * padding * (n_batches if switching else 1)
        shape = (rows, batch_spec.B, *np.shape(field.example))
        itemsize = field.stored_dtype.itemsize
        # Rounded up as in the arena, or its last pieces would not fit.
        nbytes = stored_nbytes(shape, itemsize) if field.frames else math.prod(shape) * itemsize
        sizes[kinds[path]] = sizes.get(kinds[path], 0) + aligned(nbytes)
    # One arena per storage, so that each worker receives one descriptor, however many fields there are.
    return {kind: Arena(max(size, 1), kind) for kind, size in sizes.items()}
