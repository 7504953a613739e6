"""Strategies for everything that can be sent, and the comparison that notices every difference."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from parllel.buffers import NamedTuple

DTYPES = [
    np.dtype(order + kind)
    for kind in (
        "b1",
        "i1",
        "u1",
        "i2",
        "u2",
        "i4",
        "u4",
        "i8",
        "u8",
        "f2",
        "f4",
        "f8",
        "c8",
        "c16",
    )
    for order in "<>"
]


@st.composite
def arrays(draw):
    """Arrays of all dtypes and shapes, with all bits there are, in all layouts."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    n = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind == "b":
        content = bytes(draw(st.lists(st.sampled_from([0, 1]), min_size=n, max_size=n)))
    else:
        content = draw(st.binary(min_size=n, max_size=n))
    array = np.frombuffer(content, dtype).reshape(shape)  # cannot be written to
    layout = draw(st.sampled_from(["as it is", "Fortran", "every second", "backwards", "writable"]))
    if layout == "Fortran":
        return np.asfortranarray(array)
    if layout == "every second":
        spread = np.zeros((*shape, 2), dtype)
        spread[..., 0] = array
        return spread[..., 0]
    if layout == "backwards":
        return array.T
    return array.copy() if layout == "writable" else array


SCALARS = arrays().filter(lambda array: array.size > 0).map(lambda array: array.reshape(-1)[0])
TEXT = st.text(max_size=8)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 200), 1 << 200),
    st.sampled_from([-(1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1 << 64, -(1 << 71), 1 << 71]),
    st.floats(),
    st.sampled_from([-0.0, float("inf"), float("-inf"), float("nan")]),
    TEXT,
    st.binary(max_size=8),
    st.binary(max_size=8).map(bytearray),
    arrays(),
    SCALARS,
)
KEYS = st.one_of(TEXT, st.integers(-(1 << 63), (1 << 64) - 1))


def _nodes(children):
    return st.one_of(
        st.lists(children, max_size=4),
        st.lists(children, max_size=4).map(tuple),
        st.dictionaries(KEYS, children, max_size=4),
        st.dictionaries(TEXT, children, max_size=4).map(NamedTuple._make),
    )


TREES = st.recursive(LEAVES, _nodes, max_leaves=12)


def bits(value):
    """Return what a value consists of; two values are the same if this is equal."""
    kind = type(value)
    if isinstance(value, NamedTuple):
        return NamedTuple, [(name, bits(item)) for name, item in value._asdict().items()]
    if kind is dict:
        return dict, [(type(key), key, bits(item)) for key, item in value.items()]
    if kind in (list, tuple):
        return kind, [bits(item) for item in value]
    if isinstance(value, np.ndarray):
        return kind, value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return kind, value.tobytes()
    return kind, np.float64(value).tobytes() if kind is float else value
