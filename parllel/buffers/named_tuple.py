"""Tree nodes with named fields, indexed and written together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from parllel.arrays.array import Array
from parllel.arrays.block import new_key

NodeT = TypeVar("NodeT", bound="NamedTuple")


class NamedTuple:
    """A node of a tree of values: `NamedTuple(observation=o, reward=r)`.

    Fields are attributes, in the order given. Iteration yields the values, so a node can be unpacked.
    Unlike typing.NamedTuple it needs no declaration, because the fields of a tree are known only
    once the spaces of an environment are.
    """

    __slots__ = ("_values",)

    _values: dict[str, Any]

    # The slash lets a field have the name `self`.
    def __init__(self, /, **fields: Any) -> None:
        object.__setattr__(self, "_values", fields)  # `__setattr__` below raises

    @classmethod
    def _make(cls: type[NodeT], fields: Mapping[str, Any]) -> NodeT:
        """Build a node from a mapping, without the checks of a subclass's constructor."""
        node = cls.__new__(cls)
        NamedTuple.__init__(node, **fields)
        return node

    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(self._values)

    def _asdict(self) -> dict[str, Any]:
        """Return a dict of the fields; nodes below stay nodes."""
        return dict(self._values)

    def _replace(self: NodeT, /, **fields: Any) -> NodeT:
        """Return a copy with some fields changed or added."""
        return self._make({**self._asdict(), **fields})

    def _get(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        # Called only after ordinary lookup failed, so for every field.
        # Special names first: pickle and copy look them up on objects that have no fields yet.
        if name.startswith("__") or name not in self._fields:
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; it has {list(self._fields)}"
                if not name.startswith("__")
                else name
            )
        return self._get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"field {name!r} cannot be rebound; write with [...] = value, or use _replace"
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self._asdict().values())

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedTuple):
            return NotImplemented
        if self._fields != other._fields:
            return False
        return all(_equal(mine, theirs) for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._asdict())

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self._asdict())


class NamedArrayTuple(NamedTuple):
    """A node of a tree of Arrays.

    Indexing applies lazily to every field. Writing distributes a node, a dict, a tuple (by position) or a
    scalar over the fields. Both skip fields that are None.

    Example:
        >>> import numpy as np
        >>> from parllel.arrays import Array
        >>> node = NamedArrayTuple(reward=Array((4, 2), np.float32), done=Array((4, 2), bool))
        >>> node[3, 1] = {"reward": 1.5, "done": True}
        >>> float(np.asarray(node.reward)[3, 1])
        1.5
    """

    __slots__ = ("_key", "_lazy", "_location", "_parent")

    _key: int
    _lazy: bool
    _parent: NamedArrayTuple | None
    _location: Any

    def __init__(self, /, **fields: Any) -> None:
        super().__init__(**fields)
        self._prepare()

    @classmethod
    def _make(cls: type[NodeT], fields: Mapping[str, Any]) -> NodeT:
        node = super()._make(fields)  # type: ignore[misc]
        node._prepare()
        return node

    def _prepare(self) -> None:
        # A view must not change when the window of a replay-sized array moves, so indexing can be
        # deferred until a field is accessed only in trees without such arrays.
        lazy = all(_stays(value) for value in self._values.values())
        self._set(self._values, new_key(), lazy)

    def _set(
        self,
        values: dict[str, Any],
        key: int,
        lazy: bool,
        parent: NamedArrayTuple | None = None,
        location: Any = None,
    ) -> None:
        hidden = object.__setattr__
        hidden(self, "_values", values)
        hidden(self, "_key", key)
        hidden(self, "_lazy", lazy)
        hidden(self, "_parent", parent)
        hidden(self, "_location", location)

    @property
    def _fields(self) -> tuple[str, ...]:
        parent = self._parent
        return tuple(self._values) if parent is None else parent._fields

    def _asdict(self) -> dict[str, Any]:
        """Return a dict of the fields; nodes below stay nodes."""
        if self._parent is None:
            return dict(self._values)
        return {name: self._get(name) for name in self._fields}

    def _get(self, name: str) -> Any:
        if self._parent is not None and name not in self._values:
            whole = self._parent._get(name)
            self._values[name] = None if whole is None else whole[self._location]
        return self._values[name]

    def __getitem__(self: NodeT, location: Any) -> NodeT:
        assert isinstance(self, NamedArrayTuple)
        view = type(self).__new__(type(self))
        # Fields are indexed on access: most steps use only a few leaves of a large tree.
        view._set({}, 0, self._lazy, self, _kept(location))
        if not self._lazy:
            view._asdict()
        return view

    def _numpy_at(self: NodeT, location: Any) -> NodeT:
        """Return `self[location]` with numpy views as leaves, without intermediate Arrays."""
        values: dict[str, Any] = {}
        for name, value in self._asdict().items():
            if isinstance(value, Array):
                values[name] = value.numpy_at(location)
            elif isinstance(value, NamedArrayTuple):
                values[name] = value._numpy_at(location)
            else:
                values[name] = None if value is None else np.asarray(value[location])
        node = type(self).__new__(type(self))
        assert isinstance(node, NamedArrayTuple)
        # numpy arrays never move, so indexing can always be deferred.
        node._set(values, new_key(), lazy=True)
        return node

    def __setitem__(self, location: Any, value: Any) -> None:
        # All names are checked first, so that a wrong one leaves the buffer unchanged.
        for leaf, part in self._leaves_of(value):
            leaf[location] = part

    def _leaves_of(self, value: Any) -> list[tuple[Any, Any]]:
        """Pair leaves with the values to write. Checks all names before any write."""
        pairs: list[tuple[Any, Any]] = []
        for name, part in self._parts_of(value):
            field = self._get(name)
            if isinstance(field, NamedArrayTuple):
                pairs += field._leaves_of(part)
            elif part is None:
                raise TypeError(
                    f"cannot write None into {name!r}; to leave a field empty, set it to None in "
                    "the buffer itself"
                )
            else:
                pairs.append((field, part))
        return pairs

    def _parts_of(self, value: Any) -> list[tuple[str, Any]]:
        """Pair fields with the values to write."""
        if value is None:
            raise TypeError(
                f"cannot write None into {list(self._fields)}; to leave a field empty, set it to "
                "None in the buffer itself"
            )
        targets = [name for name in self._fields if self._get(name) is not None]
        if isinstance(value, (NamedTuple, Mapping)):
            given = value._asdict() if isinstance(value, NamedTuple) else dict(value)
            unknown = [str(name) for name in given if name not in self._fields]
            missing = [name for name in targets if name not in given]
            if unknown or missing:
                raise ValueError(
                    f"expected the fields {list(self._fields)}, got unknown {unknown}, missing "
                    f"{missing}"
                )
            return [(name, given[name]) for name in targets]
        # Not lists: numpy treats these as arrays.
        if isinstance(value, tuple):
            if len(value) != len(self._fields):
                raise ValueError(
                    f"expected a tuple of {len(self._fields)} values for the fields "
                    f"{list(self._fields)}, got {len(value)}"
                )
            both = zip(self._fields, value, strict=True)
            return [(name, part) for name, part in both if name in targets]
        # Broadcasting an array over the fields is hardly ever intended.
        if np.ndim(value) != 0:
            raise TypeError(
                f"expected a node, dict, tuple or scalar for the fields {list(self._fields)}, "
                f"got an array of shape {np.shape(value)}"
            )
        return [(name, value) for name in targets]

    def __reduce__(self) -> Any:
        if self._parent is None:
            return _rebuild_known, (type(self), self._asdict(), self._key)
        if self._lazy:
            return _rebuild_view, self._path()  # stays a view of a node that the receiver knows
        return _rebuild, (type(self), self._asdict())

    def _path(self) -> tuple[NamedArrayTuple, tuple[Any, ...]]:
        """Return the root node of this view, and the indices applied to it in turn."""
        locations: list[Any] = []
        node = self
        while node._parent is not None:
            locations.append(node._location)
            node = node._parent
        return node, tuple(reversed(locations))


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, NamedTuple) or isinstance(theirs, NamedTuple):
        return isinstance(mine, NamedTuple) and isinstance(theirs, NamedTuple) and mine == theirs
    if isinstance(mine, np.ndarray) or isinstance(theirs, np.ndarray):
        return np.array_equal(mine, theirs)
    if isinstance(mine, Array) or isinstance(theirs, Array):
        return isinstance(mine, Array) and isinstance(theirs, Array) and mine == theirs
    return bool(np.all(mine == theirs))


def _kept(location: Any) -> Any:
    """Copy lists and arrays in an index, in case the caller changes them."""
    if isinstance(location, tuple):
        return tuple([_kept(item) for item in location])
    return np.array(location) if isinstance(location, (list, np.ndarray)) else location


def _stays(value: Any) -> bool:
    if isinstance(value, Array):
        return value.full_size == value.block.length
    return value._lazy if isinstance(value, NamedArrayTuple) else True


def _rebuild(cls: type[NamedTuple], fields: dict[str, Any]) -> NamedTuple:
    return cls._make(fields)


def _rebuild_view(root: NamedArrayTuple, locations: tuple[Any, ...]) -> NamedArrayTuple:
    for location in locations:
        root = root[location]
    return root


def _rebuild_known(cls: type[NamedArrayTuple], fields: dict[str, Any], key: int) -> NamedArrayTuple:
    node = cls._make(fields)
    object.__setattr__(node, "_key", key)
    return node
