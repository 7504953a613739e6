"""Buffers cross a pipe by name, here between two links of this process."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_trees import contents, descriptors, nodes, samples

from parllel.arrays import Array, RotatingArray, SharedMemoryArray
from parllel.buffers import NamedArrayTuple, NamedTuple, Samples, allocate, buffer_leaves
from parllel.buffers.link import REGISTER, Link
from parllel.buffers.tree import buffer_close, buffer_rotate
from parllel.errors import RegistrationError
from parllel.types import BatchSpec


class Wire:
    """Two links over one pipe, both in this process; the far side maps all memory again."""

    def __init__(self) -> None:
        self.near_pipe, self.far_pipe = Pipe()
        self.near, self.far = Link(self.near_pipe), Link(self.far_pipe)
        self.introductions = 0
        self.size = 0

    def send(self, value: Any, *, back: bool = False) -> Any:
        """Return what the far side gets for `value` (or the near side, if sent back)."""
        sender, receiver = (self.far, self.near) if back else (self.near, self.far)
        pipe = self.near_pipe if back else self.far_pipe
        message = sender.dumps(value)
        self.size = len(message)
        while pipe.poll():
            introduction = pipe.recv_bytes()
            assert introduction[:1] == REGISTER
            receiver.accept(introduction)
            self.introductions += 1
        return receiver.loads(message)

    def close(self) -> None:
        self.near_pipe.close()
        self.far_pipe.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


# ---------------------------------------------------------------------- by name


@pytest.mark.parametrize("storage", ["local", "managed"])
def test_every_node_travels_by_its_name_in_less_than_a_hundred_bytes(
    wire: Wire, storage: str
) -> None:
    tree = samples(storage)
    wire.send(tree)
    assert wire.introductions == 1
    every = nodes(tree)
    assert len(every) == 15
    for node in every:
        other = wire.send(node)
        assert wire.size < 100
        assert type(other) is type(node)
        assert other is not node
        assert contents(other) == contents(node)
    assert wire.introductions == 1


def test_every_view_of_every_node_travels_by_name(wire: Wire) -> None:
    tree = samples()
    wire.send(tree)
    for node in nodes(tree):
        for location in (0, 4, -1, slice(1, 3), (2, 1), (slice(None), slice(0, 2)), (..., 0)):
            other = wire.send(node[location])
            assert wire.size < 200
            assert contents(other) == contents(node[location])
        part = node[1:4]
        for location in (0, slice(1, 3), (2, 1), (..., 0)):
            assert contents(wire.send(part[location])) == contents(part[location])
    assert wire.introductions == 1


def test_both_sides_see_what_the_other_writes(wire: Wire) -> None:
    tree = samples()
    other = wire.send(tree)
    other.env.reward[2] = -1
    tree.env.observation.arms._1[0, 0] = [7, 8, 9]
    tree.env.reward[4] = -2  # padding
    assert np.asarray(tree.env.reward[2]).tolist() == [-1] * 3
    assert np.asarray(other.env.observation.arms._1[0, 0]).tolist() == [7, 8, 9]
    assert np.asarray(other.env.reward[4]).tolist() == [-2] * 3
    part = wire.send(tree.agent[1:3, 0])
    part[...] = {"action": [5, 6], "agent_info": {"value": 3, "extra": None}}
    assert np.asarray(tree.agent.action)[1:3, 0].tolist() == [5, 6]
    assert np.asarray(tree.agent.agent_info.value)[1:3, 0].tolist() == [3, 3]


def test_received_buffer_is_sent_back_as_the_senders_own(wire: Wire) -> None:
    tree = samples()
    other = wire.send(tree)
    for node, far in zip(nodes(tree), nodes(other), strict=True):
        assert wire.send(far, back=True) is node or isinstance(node, Array)
        assert contents(wire.send(far[2], back=True)) == contents(node[2])
    assert wire.send(other.env.reward[2], back=True) == tree.env.reward[2]
    assert wire.introductions == 1


def test_buffers_inside_other_values_travel_by_name(wire: Wire) -> None:
    tree = samples()
    wire.send(tree)
    number = 3
    value = {
        "call": ("step", [tree.env.reward[1], tree.agent]),
        "plain": NamedTuple(out=tree.env[0], nothing=None),
        "function": lambda n: n + number,
        "numpy": np.arange(3),
    }
    other = wire.send(value)
    assert wire.size < 2000
    assert other["call"][0] == "step"
    assert other["call"][1][0] == tree.env.reward[1]
    assert contents(other["call"][1][1]) == contents(tree.agent)
    assert contents(other["plain"].out) == contents(tree.env[0])
    assert other["function"](4) == 7
    assert other["numpy"].tolist() == [0, 1, 2]
    assert wire.send("plain") == "plain"
    assert wire.send(None) is None
    assert wire.introductions == 1


def test_array_shared_by_two_fields_stays_shared(wire: Wire) -> None:
    array = Array((3, 2), np.int32)
    other = wire.send(NamedArrayTuple(a=array, b=NamedArrayTuple(c=array)))
    assert other.a.block is other.b.c.block
    assert wire.send(array).block is other.a.block


def test_arrays_are_introduced_by_themselves_when_first_sent(wire: Wire) -> None:
    array = RotatingArray((3, 2), np.int32)
    array[1] = 5
    row = wire.send(array[1])
    assert wire.introductions == 1
    assert np.asarray(row).tolist() == [5, 5]
    whole = wire.send(array)
    assert wire.introductions == 1
    assert whole.shape == (3, 2)
    assert whole.padding == 1
    whole[2] = 6
    assert np.asarray(array).tolist() == [[0, 0], [5, 5], [6, 6]]


def test_whole_array_is_whole_though_a_view_of_it_was_introduced(wire: Wire) -> None:
    array = RotatingArray((4, 2), np.int32)
    array[...] = np.arange(8).reshape(4, 2)
    node = NamedArrayTuple(part=array[1:3])
    assert contents(wire.send(node)) == {"part": [[2, 3], [4, 5]]}
    whole = wire.send(array)
    assert np.asarray(whole).tolist() == np.arange(8).reshape(4, 2).tolist()
    assert whole.padding == 1
    assert contents(wire.send(node.part)) == {"": [[2, 3], [4, 5]]}


def test_node_class_of_a_notebook_travels(wire: Wire) -> None:
    class MyInfo(NamedArrayTuple):
        __slots__ = ()

        @property
        def doubled(self) -> Any:
            return 2 * np.asarray(self.value)

    MyInfo.__module__ = "__main__"  # as if made in a script, which children do not import
    for batches in (1, 2):
        node = MyInfo(value=Array((2, 1), np.int32, full_size=2 * batches))
        node[1] = 4
        assert wire.send(node).doubled.tolist() == [[0], [8]]
        assert wire.send(node[1:]).doubled.tolist() == [[8]]


def test_place_of_lists_and_masks_travels(wire: Wire) -> None:
    array = Array((4, 3), np.int32)
    array[...] = np.arange(12).reshape(4, 3)
    mirror = np.arange(12).reshape(4, 3)
    mask = mirror % 5 == 0
    for location in ([2, 0], ([3, 1], [0, 2]), mask, (slice(None), [2, 1])):
        assert np.asarray(wire.send(array[location])).tolist() == mirror[location].tolist()
    assert np.asarray(wire.send(array[[2, 0, 1]][[1, 1]])).tolist() == mirror[[0, 0]].tolist()


def test_sampled_steps_cost_little_and_introduce_nothing(wire: Wire) -> None:
    tree = samples(batches=50)
    wire.send(tree)
    for _ in range(50):
        assert contents(wire.send(tree.env[0])) == contents(tree.env[0])
        assert wire.size < 700
        for _, leaf in buffer_leaves(tree):
            leaf.rotate()
    assert wire.introductions == 1


def test_view_of_a_replay_names_its_absolute_place(wire: Wire) -> None:
    tree = samples(batches=3)
    wire.send(tree)
    tree.env.reward.rotate()
    view, leaf = tree.env[1:3], tree.env.reward[0]
    tree.env.reward.rotate()
    body = np.asarray(tree.env.reward.full)
    assert np.asarray(wire.send(view).reward).tolist() == body[5:7].tolist()
    assert np.asarray(wire.send(leaf)).tolist() == body[4].tolist()
    assert np.asarray(wire.send(tree.env[0].reward)).tolist() == body[8].tolist()
    assert np.asarray(wire.send(tree[0:2, 1]).env.reward).tolist() == body[8:10, 1].tolist()
    assert type(wire.send(tree[0])) is Samples
    assert wire.introductions == 1


def test_whole_of_a_replay_shows_the_batch_that_the_sender_is_at(wire: Wire) -> None:
    tree = samples(batches=3)
    tree = tree._replace(agent=tree.agent._replace(state=Array((1, 3), np.int32)))  # has one window
    wire.send(tree)
    for batch in range(5):
        start = 4 * (batch % 3)
        expected = np.asarray(tree.env.reward.full)[start : start + 4].tolist()
        assert np.asarray(wire.send(tree).env.reward).tolist() == expected
        assert np.asarray(wire.send(tree.env).reward).tolist() == expected
        leaf = wire.send({"reward": tree.env.reward})["reward"]
        assert np.asarray(leaf).tolist() == expected
        leaf[0] = -batch
        assert np.asarray(tree.env.reward)[0].tolist() == [-batch] * 3
        buffer_rotate(tree)
    assert wire.introductions == 1


def test_replay_whose_arrays_are_at_different_batches_is_refused(wire: Wire) -> None:
    tree = samples(batches=3)
    tree.env.reward.rotate()
    with pytest.raises(RegistrationError, match=r"got batches \[0, 1\]; rotate them together"):
        wire.send(tree)
    assert contents(wire.send(tree.agent)) == contents(tree.agent)


@pytest.mark.parametrize("switching", [False, True])
def test_view_in_a_tree_stays_where_it_is_when_wholes_move_on(wire: Wire, switching: bool) -> None:
    tree: Any = allocate(
        {"a": 0, "b": 0}, BatchSpec(2, 1), storage="managed", batches=2, switching=switching
    )
    tree.a[...], tree.b[...] = [[1], [2]], [[3], [4]]
    node = NamedArrayTuple(whole=tree.a, part=tree.b[1:])
    for expected in ([[1], [2]], [[0], [0]], [[1], [2]]):
        assert contents(wire.send(node)) == {"whole": expected, "part": [[4]]}
        tree.a.rotate()


rows = st.integers(0, 3)
columns = st.integers(-3, 2)
row_slices = st.slices(4).filter(
    lambda s: all(end is None or end >= 0 for end in (s.start, s.stop))
)
row_lists = st.lists(rows, min_size=1, max_size=4)
locations = st.one_of(
    rows,
    row_slices,
    row_lists,
    st.just(...),
    st.tuples(rows, columns),
    st.tuples(row_slices, st.slices(3)),
    st.tuples(row_lists, st.slices(3)),
    st.tuples(row_slices, st.lists(columns, min_size=1)),
    st.tuples(st.just(...), st.slices(3)),
)


@settings(max_examples=150)
@given(
    first=locations, columns_next=st.slices(3), moves=st.integers(0, 2), batches=st.integers(1, 3)
)
def test_any_place_reads_the_same_on_the_other_side(
    first: Any, columns_next: slice, moves: int, batches: int
) -> None:
    wire = Wire()
    tree = samples(batches=batches)
    mirror = {path: np.asarray(leaf.full).copy() for path, leaf in buffer_leaves(tree)}
    at = 0
    wire.send(tree)
    for _ in range(min(moves, batches - 1)):
        for _, leaf in buffer_leaves(tree):
            leaf.rotate()
        at += 4
    other = wire.send(tree[first])
    expected = {path: whole[at : at + 4][first] for path, whole in mirror.items()}
    assert contents(other) == {path: value.tolist() for path, value in expected.items()}
    leaf = wire.send(tree.env.observation.arms._1[first])
    assert np.asarray(leaf).tolist() == expected["env.observation.arms._1"].tolist()
    for path, value in expected.items():
        if path == "env.reward" and value.ndim == 2:
            again = wire.send(tree.env[first][:, columns_next])
            assert np.asarray(again.reward).tolist() == value[:, columns_next].tolist()
    assert wire.introductions == 1
    wire.close()
    buffer_close(tree)


# ---------------------------------------------------------------------- memory


def test_local_arrays_move_and_all_that_show_them_follow(wire: Wire) -> None:
    tree = samples("local")
    view, node_view, picked = tree.env.reward[1:3], tree.agent[0], tree.env.reward[[3, 0]]
    before = contents(tree)
    other = wire.send(tree)
    assert {leaf.storage for _, leaf in buffer_leaves(tree)} == {"managed"}
    assert contents(tree) == contents(other) == before
    view[0] = 50
    node_view[...] = 60
    picked[0] = 70
    tree.env.reward[2] = 80
    tree.env.reward[-1] = 90
    body = np.asarray(other.env.reward[-1:4])
    assert [row.tolist() for row in body[[0, 2, 3, 4]]] == [[n] * 3 for n in (90, 50, 80, 70)]
    assert np.asarray(other.agent.action)[0].tolist() == [60] * 3
    assert np.asarray(view)[0].tolist() == [50] * 3


def test_leaf_sent_alone_moves_alone(wire: Wire) -> None:
    tree = samples("local")
    wire.send(tree.env.reward)
    storages = {path: leaf.storage for path, leaf in buffer_leaves(tree)}
    assert storages.pop("env.reward") == "managed"
    assert set(storages.values()) == {"local"}
    other = wire.send(tree)
    other.env.reward[0] = 5
    other.env.done[0] = True
    assert np.asarray(tree.env.reward[0]).tolist() == [5] * 3
    assert np.asarray(tree.env.done[0]).all()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_local_array_whose_view_is_in_use_is_refused_with_the_rule(
    wire: Wire, framework: str
) -> None:
    tree = samples("local")
    held: Any = np.asarray(tree.env.observation.arms._0[1:3])[0]
    if framework == "torch":
        held = pytest.importorskip("torch").from_numpy(held)[1:]
    rule = r'allocate it with storage=\{"env.observation.arms._0": "managed"\}'
    with pytest.raises(RegistrationError, match=rf"env\.observation\.arms\._0: .*in use; {rule}"):
        wire.send(tree)
    assert {leaf.storage for _, leaf in buffer_leaves(tree)} == {"local"}
    assert not wire.far_pipe.poll()
    held[0] = -5  # still shows the array
    assert -5 in np.asarray(tree.env.observation.arms._0).ravel().tolist()
    del held
    assert contents(wire.send(tree)) == contents(tree)


def test_managed_array_whose_view_is_in_use_is_welcome(wire: Wire) -> None:
    tree = samples("managed")
    held = np.asarray(tree.env.reward)
    other = wire.send(tree)
    other.env.reward[0] = 9
    assert held[0].tolist() == [9] * 3


def test_shared_array_is_refused_with_the_rule(wire: Wire) -> None:
    tree = samples({"env.reward": "shared"})
    expected = (
        r'env\.reward: shared memory can be .*allocate it with storage=\{"env.reward": "managed"\}'
    )
    with pytest.raises(RegistrationError, match=expected):
        wire.send(tree)
    with pytest.raises(RegistrationError, match=r'array: .*storage=\{"\*": "managed"\}'):
        wire.send(SharedMemoryArray((2, 1), bool)[0])
    assert not wire.far_pipe.poll()
    assert wire.send("the pipe goes on") == "the pipe goes on"


def test_name_that_the_other_side_lacks_is_an_error(wire: Wire) -> None:
    tree = samples()
    wire.near.adopt(tree)  # as if the other side had inherited it
    for value in (tree, tree.env.reward, tree[0], [tree.agent[1]]):
        with pytest.raises(RegistrationError, match=r"buffer 0x[0-9a-f]+ is unknown to process"):
            wire.send(value)


def test_forgotten_tree_is_unknown_and_can_be_introduced_again(wire: Wire) -> None:
    tree = samples()
    wire.send(tree)
    wire.far.forget(tree)
    with pytest.raises(
        RegistrationError, match="neither inherited it at its start nor registered it later"
    ):
        wire.send(tree.env)
    wire.near.forget(tree)
    assert contents(wire.send(tree.env)) == contents(tree.env)
    assert wire.introductions == 2


def test_tree_costs_at_most_two_descriptors_on_a_side(wire: Wire) -> None:
    before = descriptors()
    tree = samples("local")
    assert descriptors() == before
    other = wire.send(tree)
    assert descriptors() <= before + 4  # both sides are in this process
    wire.near.forget(tree)
    wire.far.forget(other)
    del other, tree
    assert descriptors() == before


def test_trees_that_were_forgotten_leave_no_descriptors(wire: Wire) -> None:
    def introduce() -> None:
        tree = samples("local", T=1, B=1)
        other = wire.send(tree)
        wire.near.forget(tree)
        wire.far.forget(other)

    introduce()
    before = descriptors()
    for _ in range(300):
        introduce()
    assert descriptors() == before
    assert (wire.near._nodes, wire.far._nodes) == ({}, {})
