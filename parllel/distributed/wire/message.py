"""Trees to bytes and back."""

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
# In a message of up to this size nothing can take much, so its heads are not looked at first.
_SMALL = 4096
_encoder = Encoder()
_decoder = Decoder(ext_hook=extension)


def encode(tree: Tree) -> bytes:
    """Return a message that `decode` makes the same tree of, by any version of Python and on any machine.

    tree: None, bool, int of any size, float, str, bytes, bytearray, list, tuple, dict with keys that are
        str or int of 64 bits, NamedTuple, and numbers and arrays of numpy and parllel. A NamedArrayTuple
        arrives as a NamedTuple, an Array by value as a numpy array, and any array in C order.

    Raises:
        WireError: names the path of a value that is none of these, such as `info.renderer`: an object, a
            subclass, a set, an array of objects or records, a longdouble, half of a surrogate pair.
    """
    try:
        return _encoder.encode([VERSION, pack(tree)])
    except (UnicodeEncodeError, RecursionError) as error:
        _refuse(tree, error)


def encode_part(tree: Tree, *, inside: int = 0) -> Raw:
    """Return a tree as it is now, checked and in bytes, to stand in a list or dict of a tree for `encode`.

    So a message is put together from values that were made, and may be changed again, at different times.
    What `decode` returns holds the tree itself.

    inside: how many lists, tuples, dicts and nodes will be around it.

    Raises:
        WireError: as `encode`.
    """
    try:
        return Raw(_encoder.encode(pack(tree, DEEPEST - inside)))
    except (UnicodeEncodeError, RecursionError) as error:
        _refuse(tree, error)


def _refuse(tree: Tree, error: Exception) -> NoReturn:
    if isinstance(error, UnicodeEncodeError):
        refuse_surrogates(tree)
    raise WireError("no room is left on the stack for the lists inside each other") from None


def decode(message: bytes | bytearray | memoryview, limits: Limits = _DEFAULT) -> Tree:
    """Return the tree of a message, from whoever it may come.

    Arrays own their memory and can be written to; nothing refers to the message afterwards.

    Raises:
        TypeError: if the message is neither bytes nor anything like them.
        WireError: if the message is damaged, of another version, or exceeds a limit.
    """
    # msgspec would read memory of any format; lengths are to mean bytes.
    if type(message) is not bytes:
        message = memoryview(message).cast("B")
    if len(message) > limits.nbytes:
        raise WireError(f"{len(message)} bytes, of {limits.nbytes} allowed (Limits.nbytes)")
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
        # Versions of msgspec before 0.22 raise a TypeError for a list or an array as a key.
        raise WireError(str(error)) from None
    except RecursionError:
        raise WireError("no room is left on the stack for the lists inside each other") from None
