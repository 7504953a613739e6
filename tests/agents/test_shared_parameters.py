from __future__ import annotations

from multiprocessing import Pipe

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from parllel.agents.shared_parameters import SharedParameters
from parllel.buffers.link import REGISTER, Link


def parameters():
    return [np.arange(6.0).reshape(2, 3), np.ones(5, np.float32), np.array(3)]


class Peer:
    """The far end of a pipe, which maps the memory again as another process would."""

    def __init__(self):
        self.pipes = Pipe()
        self.near, self.far = map(Link, self.pipes)

    def send(self, value):
        self.pipes[0].send_bytes(self.near.dumps(value))
        while (message := self.pipes[1].recv_bytes())[:1] == REGISTER:
            self.far.accept(message)
        return self.far.loads(message)

    def close(self):
        for end in (*self.pipes, self.near, self.far):
            end.close() if hasattr(end, "close") else end.clear()


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


def test_the_peer_loads_what_was_published(peer):
    shared = SharedParameters(parameters())
    theirs = peer.send(shared)
    out = [np.zeros_like(array) for array in parameters()]
    seen = theirs.load(out)
    for new, array in zip(out, parameters(), strict=True):
        np.testing.assert_array_equal(new, array)
    shared.publish([array + 1 for array in parameters()])
    assert theirs.version == shared.version == seen + 1
    assert theirs.load(out, seen) == seen + 1
    for new, array in zip(out, parameters(), strict=True):
        np.testing.assert_array_equal(new, array + 1)
    shared.close()


def test_what_has_not_changed_is_neither_published_nor_loaded():
    shared = SharedParameters(parameters())
    version = shared.version
    shared.publish(parameters())
    assert shared.version == version
    out = [np.full_like(array, 77) for array in parameters()]
    assert shared.load(out, version) == version
    assert all((array == 77).all() for array in out)
    # One number is enough.
    changed = parameters()
    changed[1][4] = 2
    shared.publish(changed)
    assert shared.version == version + 1
    shared.close()


def test_first_parameters_may_be_zeros():
    zeros = [np.zeros(3)]
    shared = SharedParameters(zeros)
    out = [np.ones(3)]
    seen = shared.load(out)
    np.testing.assert_array_equal(out, zeros)
    assert shared.load(out, seen) == seen
    shared.close()


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st_numpy.scalar_dtypes().filter(lambda dtype: dtype.kind in "biuf"),
            st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        ),
        max_size=5,
    ),
    st.data(),
)
def test_any_shapes_and_types_arrive(kinds, data):
    drawn = [
        [data.draw(st_numpy.arrays(dtype.newbyteorder("="), shape)) for dtype, shape in kinds]
        for _ in range(2)
    ]
    shared = SharedParameters(drawn[0])
    for arrays in drawn:
        shared.publish(arrays)
        out = [np.empty_like(array) for array in arrays]
        shared.load(out)
        for new, array in zip(out, arrays, strict=True):
            np.testing.assert_array_equal(new, array)
    shared.close()


def test_other_shapes_are_refused():
    shared = SharedParameters(parameters())
    with pytest.raises(ValueError, match=r"parameter 1: expected shape \(5,\), got \(1,\)"):
        shared.publish([*parameters()[:1], np.ones(1), *parameters()[2:]])
    with pytest.raises(ValueError, match=r"zip\(\)"):
        shared.publish(parameters()[:2])
    shared.close()
    shared.close()
    assert shared.version == 1
