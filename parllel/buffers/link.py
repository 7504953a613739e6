"""Registration: after the first time, a buffer crosses a pipe as its name and a location.

    sender                                   receiver
    reduce(node)
      unknown to the peer?
        local arrays move to managed memory
        REGISTER, structure ---------------> builds the same tree over the same memory
        descriptors of the arenas ---------> and knows each of its nodes by key
    (key, location) -----------------------> resolve: node, indexed

Any node of a registered tree, leaf or inner, travels like this, and every view of one. Where the arrays of a
whole hold several batches (two sides, or a replay), the location is the number of the current one, and
the receiver changes to it.

    who writes       each end its own list of nodes: the sender after it has sent, the receiver when it reads
    who reads        the end that resolves a name; a pipe keeps its order, so the introduction, its
                     descriptors and the first name arrive one after the other
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import cloudpickle

from parllel.arrays.arena import Arena, aligned
from parllel.arrays.array import Array
from parllel.arrays.places import BasicIndex, Location
from parllel.buffers.batches import batch_number, moving
from parllel.buffers.named_tuple import NamedArrayTuple
from parllel.buffers.tree import buffer_arrays, buffer_leaves
from parllel.errors import ParllelError, RegistrationError
from parllel.system.processes.child import Child
from parllel.types import Tree

REGISTER = b"\xfe"  # first byte of a message that introduces a tree
# (key, location) with location None for the whole, or the number of its window if there are several;
# (0, class, {field: Ref}) for an unnamed node
Ref: TypeAlias = tuple[Any, ...]
_DEEPEST = 20  # a value may hold itself


class Link:
    """One end of a connection over which buffers travel by name.

    Args:
        connection: a duplex multiprocessing Pipe.
        child: the peer, where this is its parent: nothing is sent to one that does not read for longer than
            `timeout_s`, which may be set at any time. A child itself waits for as long as it takes.

    The link keeps what it registered alive until `forget` or the end of the link.
    """

    def __init__(self, connection: Connection, child: Child | None = None) -> None:
        self.timeout_s = 60.0
        self._connection = connection
        self._child = child
        # By keys that are the same at both ends: a node gets its key when it is made, and keeps it.
        self._nodes: dict[int, Array | NamedArrayTuple] = {}

    # ------------------------------------------------------------------ sending

    def dumps(self, value: Any, *, plain: bool = False) -> bytes:
        """Return `value` as bytes for `loads` at the peer, buffers in it by name.

        Buffers that the peer does not know are introduced to it first, through the connection.

        plain: there are none in `value`, nor anything that only cloudpickle can pickle: this is quicker.

        Raises:
            RegistrationError: if a buffer cannot be handed over; says how to allocate it.
            TypeError: if something else cannot be pickled; names the place in `value`.
        """
        if isinstance(value, (Array, NamedArrayTuple)):
            # Before the bytes are returned the peer has been sent what introduces the buffer, so whatever the
            # caller does with them comes after it.
            ref = self.reduce(value)
            # An unnamed node brings its class along, which may be one of a script.
            dumps: Callable[..., bytes] = cloudpickle.dumps if ref[0] == 0 else pickle.dumps
            return b"r" + dumps(ref, pickle.HIGHEST_PROTOCOL)
        if plain:
            return b"p" + pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        try:
            return b"o" + self._dumped(value)
        except (ParllelError, OSError, MemoryError):
            raise
        except Exception as error:  # whatever the parts of `value` raise that cannot be pickled
            part = unsendable_part(value, self._dumped)
            raise TypeError(f"{part} cannot be sent to another process: {error}") from error

    def _dumped(self, value: Any) -> bytes:
        file = io.BytesIO()
        _ByName(file, self).dump(value)
        return file.getvalue()

    def reduce(self, node: Array | NamedArrayTuple) -> Ref:
        """Return the name of a node, having introduced its tree if need be."""
        if isinstance(node, Array):
            # The key of the memory, not of the view: all views of it share one introduction.
            key = node.block.key
            if key not in self._nodes:
                self.register(node)
            return key, _encode(node)
        # The name is that of the root, so that a slice of a known tree introduces nothing.
        root, locations = node._path()
        if not node._lazy and locations:
            # A view stays where it is when the whole changes over to another batch, so a name with an index
            # would mean other rows then: every leaf says its absolute place.
            refs = {
                name: None if value is None else self.reduce(value)
                for name, value in node._asdict().items()
            }
            return 0, type(node), refs
        if root._key not in self._nodes:
            self.register(root)
        if not node._lazy:  # there are several windows
            return root._key, _window_number(node)
        return root._key, locations or None

    def register(self, tree: Array | NamedArrayTuple) -> None:
        """Introduce a tree to the peer; its later use costs a name.

        Raises:
            RegistrationError: for shared memory (which can only be inherited), and for local memory
                with numpy or torch views in use, which a move would strand.
            WorkerError: as `Child.send_bytes` does, if the peer is a child.
        """
        if isinstance(tree, Array):
            tree = _root_of(tree)
        # First, as it may refuse: nothing has been sent then, and both ends know the same nodes.
        _make_shareable(tree)
        arenas: list[Arena] = []
        file = io.BytesIO()
        _Introduction(file, arenas).dump(tree)
        # What the receiver needs to map them; in this order the descriptors follow.
        described = [(arena.nbytes, arena.storage, arena.tag) for arena in arenas]
        message = pickle.dumps((described, file.getvalue()), pickle.HIGHEST_PROTOCOL)
        self._introduce(REGISTER + message, arenas)
        # Only now: had the sending failed, names would be sent that the peer does not know.
        self.adopt(tree)

    def _introduce(self, message: bytes, arenas: Sequence[Arena]) -> None:
        sends: list[Callable[[], None]] = []
        # Windows maps memory by the arena's tag, without a descriptor.
        if sys.platform != "win32":
            pid = None if self._child is None else self._child.pid
            sends = [
                partial(reduction.send_handle, self._connection, arena.fd, pid) for arena in arenas
            ]
        # The message first: it says how many descriptors follow, and the receiver reads exactly these.
        # A parent must not block on a child that does not read; a child may wait for its parent for ever.
        if self._child is not None:
            self._child.send_bytes(message, self.timeout_s)
            self._child.send_handles(sends, self.timeout_s)
        else:
            self._connection.send_bytes(message)
            for send in sends:
                send()

    def adopt(self, tree: Tree) -> None:
        """Know the nodes of a tree that the peer has as well (it inherited them at its start)."""
        self._nodes.update(_nodes_of(tree))

    def forget(self, tree: Tree) -> None:
        """Forget the nodes of a tree on this side; the peer goes on knowing them."""
        for key in _nodes_of(tree):
            self._nodes.pop(key, None)

    def clear(self) -> None:
        """Forget all nodes on this side, when the connection has ended."""
        self._nodes.clear()

    # ------------------------------------------------------------------ receiving

    def receive(self, child: Child, timeout_s: float, doing: str) -> bytes:
        """Return the next reply of a child, having taken in the buffers that it introduced before.

        Raises: as Child.receive does. The child may have ended, or be stopped, in the middle.
        """
        # A child introduces what it answers with before the answer itself.
        while True:
            message = child.receive(timeout_s, doing)
            if message[:1] != REGISTER:
                return message
            child.receive_handles(partial(self.accept, message), timeout_s, doing)

    def accept(self, message: bytes, await_bytes: Callable[[], None] = lambda: None) -> None:
        """Build the tree that a REGISTER message introduces; its descriptors follow it.

        await_bytes: called before a descriptor is read, which waits for it without an end.
        """
        # Pickle is safe here: both ends of the pipe are processes of one program.
        described, content = pickle.loads(message[1:])
        arenas = []
        for nbytes, storage, tag in described:
            fd = -1
            if sys.platform != "win32":
                await_bytes()
                fd = reduction.recv_handle(self._connection)
                # Children of this process get what they need when they start, and no more.
                os.set_inheritable(fd, False)
            arenas.append(Arena.attach(nbytes, storage, fd, tag))
        # After all descriptors: what is built over the arenas is in memory that is mapped already.
        self.adopt(_StructureUnpickler(io.BytesIO(content), arenas).load())

    def loads(self, message: bytes) -> Any:
        """Return what the peer's `dumps` was given."""
        if message[:1] == b"p":
            return pickle.loads(message[1:])
        if message[:1] == b"r":
            return self.resolve(pickle.loads(message[1:]))
        return _Resolver(io.BytesIO(message[1:]), self).load()

    def resolve(self, ref: Ref) -> Array | NamedArrayTuple:
        """Return the node of a name.

        Raises:
            RegistrationError: if this side has no such node.
        """
        if ref[0] == 0:
            _, cls, refs = ref
            parts = {name: None if r is None else self.resolve(r) for name, r in refs.items()}
            made: NamedArrayTuple = cls._make(parts)
            return made
        key, location = ref
        # The pipe keeps its order, so an introduction comes before the first name of it.
        node = self._nodes.get(key)
        if node is None:
            raise RegistrationError(
                f"buffer {key:#x} is not known to process {os.getpid()}: it was neither inherited "
                "at its start nor registered since"
            )
        if location is None:
            return node
        if type(location) is int:
            # No data move, so this may happen while the peer writes another batch.
            for array in _moving_arrays(node):
                array.block.show(location)
            return node
        # An absolute place in the memory, which is the same whichever batch this side shows.
        if isinstance(node, Array):
            return type(node)._of(node.block, _decode(location, node))
        for step in location:
            node = node[step]
        return node


def _nodes_of(tree: Tree) -> dict[int, Array | NamedArrayTuple]:
    """Return all nodes by key. A view has no name: what it is a view of has."""
    if isinstance(tree, Array):
        return {tree.block.key: _root_of(tree)}
    if not isinstance(tree, NamedArrayTuple):
        return {}
    root, _ = tree._path()
    found: dict[int, Array | NamedArrayTuple] = {root._key: root}
    for value in root:
        found.update(_nodes_of(value))
    return found


def _root_of(array: Array) -> Array:
    # A new object over the same memory: the peer is to know the whole, and views hold no reference to it.
    return type(array)._of(array.block, None) if array.is_view else array


def _make_shareable(tree: Array | NamedArrayTuple) -> None:
    # All are looked at before any moves, so that a tree that is refused is as it was.
    paths = {leaf.block.key: path for path, leaf in buffer_leaves(tree) if isinstance(leaf, Array)}
    local = []
    for array in buffer_arrays(tree):
        rule = f'storage={{"{paths[array.block.key] or "*"}": "managed"}}'
        if array.storage == "shared":
            raise RegistrationError(
                f"{paths[array.block.key] or 'array'}: shared memory can be handed over only when a "
                f"process starts (buffers=...); to send it to a running one allocate with {rule}"
            )
        if array.storage == "local":
            # Views of the old memory would show what it held at the move, and writes to them would be lost.
            if array.block.handed_out:
                raise RegistrationError(
                    f"{paths[array.block.key] or 'array'}: cannot move to shared memory, because "
                    f"numpy or torch views of it are in use; allocate with {rule}"
                )
            local.append(array)
    if local:
        # One arena, so one descriptor: a process can pass only so many.
        arena = Arena(sum(aligned(array.block.nbytes) for array in local), "managed")
        for array in local:
            array.block.move_to(arena)


def _encode(array: Array) -> Any:
    """Return the place of a view in few bytes: ints, triples, full dimensions at the end left out."""
    if not array.is_view:
        return _window_number(array)
    place = array.place
    if not isinstance(place, BasicIndex):
        return place
    dims = list(place.dims)
    while dims and dims[-1] == range(array.block.shape[len(dims) - 1]):
        dims.pop()
    return tuple(d if isinstance(d, int) else (d.start, d.stop, d.step) for d in dims)


def _moving_arrays(tree: Tree) -> list[Array]:
    """Return the arrays with several windows; views among them stay where they are."""
    wholes = [
        leaf for _, leaf in buffer_leaves(tree) if isinstance(leaf, Array) and not leaf.is_view
    ]
    return moving(buffer_arrays(wholes))


def _window_number(tree: Tree) -> int | None:
    """Return which batch the arrays of a tree show; None if none of them has several."""
    arrays = _moving_arrays(tree)
    return batch_number(arrays) if arrays else None


def _decode(location: Any, array: Array) -> Location:
    if not isinstance(location, tuple):
        place: Location = location
        return place
    dims = [d if isinstance(d, int) else range(*d) for d in location]
    rest = [range(n) for n in array.block.shape[len(dims) :]]
    return BasicIndex((*dims, *rest))


class _ByName(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles anything, buffers by name."""

    def __init__(self, file: io.BytesIO, link: Link) -> None:
        super().__init__(file)
        self._link = link

    def persistent_id(self, value: Any) -> Ref | None:
        if isinstance(value, (Array, NamedArrayTuple)):
            return self._link.reduce(value)
        return None


class _Resolver(pickle.Unpickler):
    """Puts the nodes of this side in place of names."""

    def __init__(self, file: io.BytesIO, link: Link) -> None:
        super().__init__(file)
        self._link = link

    def persistent_load(self, ref: Ref) -> Any:
        return self._link.resolve(ref)


class _Introduction(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles the structure of a tree; arenas become numbers, their descriptors travel apart."""

    def __init__(self, file: io.BytesIO, arenas: list[Arena]) -> None:
        super().__init__(file)
        self._arenas = arenas

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, Arena):
            return None
        # Once each, however many arrays lie in it: a descriptor that is sent twice is mapped twice.
        if value not in self._arenas:
            self._arenas.append(value)
        return self._arenas.index(value)


class _StructureUnpickler(pickle.Unpickler):
    """Builds the tree over arenas that were mapped from the descriptors."""

    def __init__(self, file: io.BytesIO, arenas: list[Arena]) -> None:
        super().__init__(file)
        self._arenas = arenas

    def persistent_load(self, number: int) -> Arena:
        return self._arenas[number]


def unsendable_part(value: Any, dumps: Callable[[Any], object]) -> str:
    """Return the place and type of the innermost part of `value` that `dumps` raises for.

    Of what belongs to a dict the place is as one would write it: `info['renderer']`.
    """
    place: list[str] = []
    while len(place) < _DEEPEST:
        for name, part in _parts(value, first=not any(place)):
            try:
                dumps(part)
            except Exception:
                place.append(name)
                value = part
                break
        else:
            break
    said = "".join(place)
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    return f"{said}, of type {kind}," if said else f"an object of type {kind}"


def _parts(value: Any, first: bool) -> list[tuple[str, Any]]:
    """Return what a value holds, by how it is written; the tuples around it have no name of their own."""
    if isinstance(value, Mapping):
        return [(str(key) if first else f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [("" if first else f"[{i}]", part) for i, part in enumerate(value)]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(value, type):
        return [(name if first else f".{name}", part) for name, part in attributes.items()]
    return [("", part) for part in _arguments(value)]


def _arguments(value: Any) -> tuple[Any, ...]:
    """Return what an object without attributes is to be made of again."""
    try:
        make_traj_info = value.__reduce_ex__(4)
    except Exception:
        return ()
    return make_traj_info[1] if isinstance(make_traj_info, tuple) else ()
