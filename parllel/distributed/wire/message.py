"""Encoding of trees as MessagePack messages."""

from __future__ import annotations

from typing import NoReturn

from msgspec import DecodeError, Raw
from msgspec.msgpack import Decoder, Encoder

from parllel.distributed.wire.codes import PREFIX, VERSION
from parllel.distributed.wire.heads import check_heads
from parllel.distributed.wire.limits import DEEPEST, Limits
from parllel.distributed.wire.pack import pack, refuse_surrogates
from parllel.distributed.wire.unpack import extension, finish
from parllel.distributed.wire.wire_error import WireError
from parllel.types import Tree

_DEFAULT = Limits()
# Messages up to this size cannot take much memory, so their heads are not checked first.
_SMALL = 4096
_encoder = Encoder()
_decoder = Decoder(ext_hook=extension)


def encode(tree: Tree) -> bytes:
    """Encode a tree as a message, which `decode` restores on any machine and in any version of Python.

    tree: None, bool, int of any size, float, str, bytes, bytearray, list, tuple, dict with str or 64-bit int
        keys, NamedTuple, and scalars and arrays of numpy and parllel. A NamedArrayTuple is decoded as a
        NamedTuple, an Array as a numpy array with its values, and every array in C order.

    Raises:
        WireError: for any other value: an object, a subclass, a set, an array of objects or records, a
            longdouble, a lone surrogate. Names its path, such as `info.renderer`.
    """
    try:
        return _encoder.encode([VERSION, pack(tree)])
    except (UnicodeEncodeError, RecursionError) as error:
        _refuse(tree, error)


def encode_part(tree: Tree, *, inside: int = 0) -> Raw:
    """Encode a tree now, to be placed in a list or dict of a tree that is encoded later.

    Use it to assemble a message from values that exist, and may change, at different times. `decode` returns
    the tree in its place.

    inside: number of lists, tuples, dicts and nodes that will enclose the tree.

    Raises:
        WireError: as in `encode`.
    """
    try:
        return Raw(_encoder.encode(pack(tree, DEEPEST - inside)))
    except (UnicodeEncodeError, RecursionError) as error:
        _refuse(tree, error)


def _refuse(tree: Tree, error: Exception) -> NoReturn:
    if isinstance(error, UnicodeEncodeError):
        refuse_surrogates(tree)
    raise WireError("values are nested too deeply for the Python stack") from None


def decode(message: bytes | bytearray | memoryview, limits: Limits = _DEFAULT) -> Tree:
    """Decode a message from an untrusted source.

    Arrays are writable and own their memory; nothing refers to the message afterwards.

    Raises:
        TypeError: if the message is not bytes-like.
        WireError: if the message is damaged, has another version, or exceeds a limit.
    """
    # msgspec reads buffers of any format, of which `len` might not count bytes.
    if type(message) is not bytes:
        message = memoryview(message).cast("B")
    if len(message) > limits.nbytes:
        raise WireError(
            f"expected at most {limits.nbytes} bytes (Limits.nbytes), got {len(message)}"
        )
    if message[:2] != PREFIX:
        raise WireError(
            f"expected a message of version {VERSION}, which begins with {PREFIX!r}, "
            f"got {bytes(message[:2])!r}"
        )
    if len(message) > _SMALL or len(message) > limits.items:
        check_heads(message, len(PREFIX), limits)
    try:
        return finish(_decoder.decode(message)[1], limits.depth)
    except (DecodeError, UnicodeDecodeError, TypeError) as error:
        # msgspec before 0.22 raises TypeError for a list or an array as a key.
        raise WireError(str(error)) from None
    except RecursionError:
        raise WireError("values are nested too deeply for the Python stack") from None
