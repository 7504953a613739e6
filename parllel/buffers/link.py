"""Transfer of buffers over a pipe: registered once, then sent as a key and a location.

    sender                                   receiver
    reduce(node)
      unknown to the peer?
        local arrays move to managed memory
        REGISTER, structure ---------------> builds the same tree over the same memory
        descriptors of the arenas ---------> and knows each of its nodes by key
    (key, location) -----------------------> resolve: node, indexed

Any node of a registered tree, leaf or inner, is sent like this, and so is every view of one. If the arrays
hold several batches (two sides, or a replay), the location of a whole node is the number of the current
batch, and the receiver switches to it.

    who writes       each end its own table of nodes: the sender after sending, the receiver on reading
    who reads        the end that resolves a key; a pipe keeps its order, so the introduction, its
                     descriptors and the first use of the key arrive in this order
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
# (key, location), with location None for a whole node, or its window number if there are several;
# (0, class, {field: Ref}) for a node without a key
Ref: TypeAlias = tuple[Any, ...]
_DEEPEST = 20  # recursion limit: a value may contain itself


class Link:
    """One end of a connection that sends buffers by key.

    Args:
        connection: a duplex multiprocessing Pipe.
        child: the peer, if this is the parent's end of the connection. Sending times out after
            `timeout_s`, which may be changed at any time. The child's end has no timeout.

    The link keeps registered buffers alive until `forget` is called or the link is closed.
    """

    def __init__(self, connection: Connection, child: Child | None = None) -> None:
        self.timeout_s = 60.0
        self._connection = connection
        self._child = child
        # Keys are the same at both ends: a node gets its key when it is created, and keeps it.
        # Not locked: one thread at a time uses a link, and the conversation that it belongs to.
        self._nodes: dict[int, Array | NamedArrayTuple] = {}

    # ------------------------------------------------------------------ sending

    def dumps(self, value: Any, *, plain: bool = False) -> bytes:
        """Serialize `value` for `loads` at the peer, with buffers replaced by their keys.

        Buffers that the peer does not know are first introduced to it over the connection.

        plain: whether to use a faster path, for values without buffers that need no cloudpickle.

        Raises:
            RegistrationError: if a buffer cannot be shared. The message says how to allocate it.
            TypeError: if anything else cannot be pickled. The message names the place in `value`.
        """
        if isinstance(value, (Array, NamedArrayTuple)):
            # The introduction is sent before the bytes are returned, so it precedes them on the pipe.
            ref = self.reduce(value)
            # A node without a key is sent with its class, which may be defined in a script.
            dumps: Callable[..., bytes] = cloudpickle.dumps if ref[0] == 0 else pickle.dumps
            return b"r" + dumps(ref, pickle.HIGHEST_PROTOCOL)
        if plain:
            return b"p" + pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        try:
            # Buffers introduced before an error stay introduced: by then both ends know them.
            return b"o" + self._dumped(value)
        except (ParllelError, OSError, MemoryError):
            raise
        except Exception as error:  # unpicklable parts may raise anything
            part = unsendable_part(value, self._dumped)
            raise TypeError(f"{part} cannot be sent to another process: {error}") from error

    def _dumped(self, value: Any) -> bytes:
        file = io.BytesIO()
        _ByName(file, self).dump(value)
        return file.getvalue()

    def reduce(self, node: Array | NamedArrayTuple) -> Ref:
        """Return the reference of a node, after introducing its tree if necessary."""
        if isinstance(node, Array):
            # The key of the memory, not of the view, so that all views share one introduction.
            key = node.block.key
            if key not in self._nodes:
                self.register(node)
            return key, _encode(node)
        # The key of the root, so that a slice of a known tree needs no introduction.
        root, locations = node._path()
        if not node._lazy and locations:
            # A view keeps its position when the whole switches to another batch, so key and index would
            # then mean other rows. Send the absolute place of every leaf instead.
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
        """Introduce a tree to the peer. Later messages refer to it by key.

        Raises:
            RegistrationError: for shared memory, which can only be inherited, and for local memory
                with numpy or torch views in use, which would still show the old memory after the
                buffer moves.
            WorkerError: if the peer is a child that died or does not read, see `Child.send_bytes`.
        """
        if isinstance(tree, Array):
            tree = _root_of(tree)
        # First, because it may raise: nothing has been sent then, and both ends know the same nodes.
        _make_shareable(tree)
        arenas: list[Arena] = []
        file = io.BytesIO()
        _Introduction(file, arenas).dump(tree)
        # What the receiver needs to map the arenas; their descriptors follow in the same order.
        described = [(arena.nbytes, arena.storage, arena.tag) for arena in arenas]
        message = pickle.dumps((described, file.getvalue()), pickle.HIGHEST_PROTOCOL)
        self._introduce(REGISTER + message, arenas)
        # Only now: if sending fails, the peer does not know the nodes, and no key of theirs may be sent.
        self.adopt(tree)

    def _introduce(self, message: bytes, arenas: Sequence[Arena]) -> None:
        sends: list[Callable[[], None]] = []
        # Windows maps memory by the arena's tag, without a descriptor.
        if sys.platform != "win32":
            pid = None if self._child is None else self._child.pid
            sends = [
                partial(reduction.send_handle, self._connection, arena.fd, pid) for arena in arenas
            ]
        # The message first: it gives the number of descriptors, and the receiver reads exactly these.
        # A parent must not block on a child that does not read; a child may wait for its parent forever.
        if self._child is not None:
            self._child.send_bytes(message, self.timeout_s)
            self._child.send_handles(sends, self.timeout_s)
        else:
            self._connection.send_bytes(message)
            for send in sends:
                send()

    def adopt(self, tree: Tree) -> None:
        """Register the nodes of a tree that the peer has inherited."""
        self._nodes.update(_nodes_of(tree))

    def forget(self, tree: Tree) -> None:
        """Forget the nodes of a tree at this end. The peer keeps them."""
        for key in _nodes_of(tree):
            self._nodes.pop(key, None)

    def clear(self) -> None:
        """Forget all nodes at this end, once the connection is closed."""
        self._nodes.clear()

    # ------------------------------------------------------------------ receiving

    def receive(self, child: Child, timeout_s: float, doing: str) -> bytes:
        """Return the next reply of a child, and register any buffers that the child introduces before it.

        Raises the errors of `Child.receive`. The child may die, or be stopped, in the middle of a
        message.
        """
        # A child introduces the buffers of a reply before the reply itself.
        while True:
            message = child.receive(timeout_s, doing)
            if message[:1] != REGISTER:
                return message
            child.receive_handles(partial(self.accept, message), timeout_s, doing)

    def accept(self, message: bytes, await_bytes: Callable[[], None] = lambda: None) -> None:
        """Build the tree introduced by a REGISTER message, reading the descriptors that follow it.

        await_bytes: function called before each read of a descriptor, since the read itself has no
            timeout.
        """
        # Pickle is safe here: both ends of the pipe are processes of one program.
        described, content = pickle.loads(message[1:])
        arenas = []
        for nbytes, storage, tag in described:
            fd = -1
            if sys.platform != "win32":
                await_bytes()
                fd = reduction.recv_handle(self._connection)
                # Not inheritable: children of this process get their descriptors explicitly.
                os.set_inheritable(fd, False)
            # The arena owns the descriptor from here on, also if it cannot be mapped.
            arenas.append(Arena.attach(nbytes, storage, fd, tag))
        # After all descriptors, so that the tree is built over memory that is already mapped.
        self.adopt(_StructureUnpickler(io.BytesIO(content), arenas).load())

    def loads(self, message: bytes) -> Any:
        """Restore a value serialized by `dumps` at the peer."""
        if message[:1] == b"p":
            return pickle.loads(message[1:])
        if message[:1] == b"r":
            return self.resolve(pickle.loads(message[1:]))
        return _Resolver(io.BytesIO(message[1:]), self).load()

    def resolve(self, ref: Ref) -> Array | NamedArrayTuple:
        """Return the node of a reference.

        Raises:
            RegistrationError: if the node is not known at this end.
        """
        if ref[0] == 0:
            _, cls, refs = ref
            parts = {name: None if r is None else self.resolve(r) for name, r in refs.items()}
            # Not registered: its new key means nothing to the peer.
            made: NamedArrayTuple = cls._make(parts)
            return made
        key, location = ref
        # The pipe keeps its order, so the introduction comes before the first use of a key.
        node = self._nodes.get(key)
        if node is None:
            raise RegistrationError(
                f"buffer {key:#x} is unknown to process {os.getpid()}, which neither inherited it "
                "at its start nor registered it later"
            )
        if location is None:
            return node
        if type(location) is int:
            # Moves no data, so it is safe while the peer writes another batch.
            for array in _moving_arrays(node):
                array.block.show(location)
            return node
        # An absolute place in the memory, independent of the current batch of this end.
        if isinstance(node, Array):
            return type(node)._of(node.block, _decode(location, node))
        for step in location:
            node = node[step]
        return node


def _nodes_of(tree: Tree) -> dict[int, Array | NamedArrayTuple]:
    """Return all nodes by key. Views have no key; the nodes they are views of have."""
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
    # A new object over the same memory: the peer needs the whole array, to which views have no reference.
    return type(array)._of(array.block, None) if array.is_view else array


def _make_shareable(tree: Array | NamedArrayTuple) -> None:
    # All arrays are checked before any is moved, so that a rejected tree is unchanged.
    paths = {leaf.block.key: path for path, leaf in buffer_leaves(tree) if isinstance(leaf, Array)}
    local = []
    for array in buffer_arrays(tree):
        rule = f'storage={{"{paths[array.block.key] or "*"}": "managed"}}'
        if array.storage == "shared":
            raise RegistrationError(
                f"{paths[array.block.key] or 'array'}: shared memory can be passed to a process "
                "only when the process starts (buffers=...); to send it to a running process, "
                f"allocate it with {rule}"
            )
        if array.storage == "local":
            # Views of the old memory would be stale after the move, and writes to them would be lost.
            if array.block.handed_out:
                raise RegistrationError(
                    f"{paths[array.block.key] or 'array'}: cannot be moved to shared memory, "
                    f"because numpy or torch views of it are in use; allocate it with {rule}"
                )
            local.append(array)
    if local:
        # One arena, so one descriptor: their number is limited per process.
        arena = Arena(sum(aligned(array.block.nbytes) for array in local), "managed")
        for array in local:
            # Arrays and views refer to the block, so all of them see the new
            # memory, under the same key.
            array.block.move_to(arena)


def _encode(array: Array) -> Any:
    """Encode the place of a view compactly: ints and triples, without full trailing dimensions."""
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
    """Return the arrays with several windows. Views are left out: their position is fixed."""
    wholes = [
        leaf for _, leaf in buffer_leaves(tree) if isinstance(leaf, Array) and not leaf.is_view
    ]
    return moving(buffer_arrays(wholes))


def _window_number(tree: Tree) -> int | None:
    """Return the current batch of a tree's arrays; None if they hold a single batch."""
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
    """Pickler that replaces buffers by their references."""

    def __init__(self, file: io.BytesIO, link: Link) -> None:
        super().__init__(file)
        self._link = link

    def persistent_id(self, value: Any) -> Ref | None:
        if isinstance(value, (Array, NamedArrayTuple)):
            return self._link.reduce(value)
        return None


class _Resolver(pickle.Unpickler):
    """Unpickler that replaces references by the nodes of this end."""

    def __init__(self, file: io.BytesIO, link: Link) -> None:
        super().__init__(file)
        self._link = link

    def persistent_load(self, ref: Ref) -> Any:
        return self._link.resolve(ref)


class _Introduction(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickler of a tree's structure. Arenas become numbers; their descriptors are sent separately."""

    def __init__(self, file: io.BytesIO, arenas: list[Arena]) -> None:
        super().__init__(file)
        self._arenas = arenas

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, Arena):
            return None
        # Each arena once, however many arrays it holds: a descriptor sent twice would be mapped twice.
        if value not in self._arenas:
            self._arenas.append(value)
        return self._arenas.index(value)


class _StructureUnpickler(pickle.Unpickler):
    """Unpickler that builds a tree over the arenas mapped from the descriptors."""

    def __init__(self, file: io.BytesIO, arenas: list[Arena]) -> None:
        super().__init__(file)
        self._arenas = arenas

    def persistent_load(self, number: int) -> Arena:
        return self._arenas[number]


def unsendable_part(value: Any, dumps: Callable[[Any], object]) -> str:
    """Return the place and type of the innermost part of `value` for which `dumps` raises.

    The place reads like Python code: `info['renderer']`.
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
    """Return the parts of a value by the code that accesses them; outer tuples have no name."""
    if isinstance(value, Mapping):
        return [(str(key) if first else f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [("" if first else f"[{i}]", part) for i, part in enumerate(value)]
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and not isinstance(value, type):
        return [(name if first else f".{name}", part) for name, part in attributes.items()]
    return [("", part) for part in _arguments(value)]


def _arguments(value: Any) -> tuple[Any, ...]:
    """Return the arguments from which pickle would rebuild an object without attributes."""
    try:
        make_traj_info = value.__reduce_ex__(4)
    except Exception:
        return ()
    return make_traj_info[1] if isinstance(make_traj_info, tuple) else ()
