"""Nodes of trees: reading, writing, views."""

from __future__ import annotations

import copy
import pickle
from multiprocessing import resource_sharer
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parllel.arrays import Array, ManagedMemoryArray, RotatingArray
from parllel.buffers import AgentSamples, EnvSamples, NamedArrayTuple, NamedTuple, Samples


def tree() -> NamedArrayTuple:
    """Fields: [4, 2], [4, 2, 3], a node with [4, 2] and None."""
    return NamedArrayTuple(
        reward=Array((4, 2), np.float32),
        observation=RotatingArray((4, 2, 3), np.float32, padding=1),
        env_info=NamedArrayTuple(count=Array((4, 2), np.int32), extra=None),
    )


def windowed(full_size: int = 12) -> NamedArrayTuple:
    """A replay-sized tree whose rows say which they are; the window has moved on once."""
    array = Array((4, 2), np.float32, full_size=full_size)
    array.full[...] = np.arange(full_size)[:, None]
    node = NamedArrayTuple(data=array, inner=NamedArrayTuple(data=array))
    array.rotate()
    return node


# ---------------------------------------------------------------------- plain nodes


def test_fields_are_attributes_in_the_order_given() -> None:
    node = NamedTuple(b=1, a="two")
    assert node._fields == ("b", "a")
    assert (node.b, node.a) == (1, "two")
    assert node._asdict() == {"b": 1, "a": "two"}
    assert len(node) == 2
    b, a = node
    assert (b, a) == (1, "two")
    assert {"a", "b"} <= set(dir(node))


def test_repr_is_that_of_a_dict() -> None:
    assert repr(NamedTuple(a=1, b=NamedTuple(c=None))) == "{'a': 1, 'b': {'c': None}}"
    assert repr(NamedArrayTuple(a=Array((2, 1), bool), b=None)) == (
        "{'a': <Array (2, 1) bool, local>, 'b': None}"
    )


def test_unknown_field_is_named_with_those_that_exist() -> None:
    with pytest.raises(AttributeError, match=r"NamedTuple has no field 'c'; it has \['a', 'b'\]"):
        _ = NamedTuple(a=1, b=2).c
    assert not hasattr(tree(), "__array__")


def test_field_cannot_be_rebound() -> None:
    node = tree()
    with pytest.raises(AttributeError, match=r"'reward' cannot be rebound; write with \[...\]"):
        node.reward = 3
    with pytest.raises(AttributeError, match="'a' cannot be rebound"):
        NamedTuple(a=1).a = 2


def test_replace_keeps_the_class_and_the_other_fields() -> None:
    samples = AgentSamples(action=1, agent_info=2)
    changed = samples._replace(action=3, advantage=4)
    assert type(changed) is AgentSamples
    assert changed._asdict() == {"action": 3, "agent_info": 2, "advantage": 4}
    assert samples.action == 1


def test_equality_compares_fields_and_values() -> None:
    assert NamedTuple(a=np.arange(3), b=None) == NamedTuple(a=np.arange(3), b=None)
    assert NamedTuple(a=np.arange(3)) != NamedTuple(a=np.array([0, 1, 3]))
    assert NamedTuple(a=1, b=2) != NamedTuple(b=2, a=1)
    assert NamedTuple(a=1) != {"a": 1}
    for other in (np.arange(4), np.zeros((0,)), np.arange(3)[None], 1, None, NamedTuple(x=1)):
        assert NamedTuple(a=np.arange(3)) != NamedTuple(a=other)
        assert NamedTuple(a=other) != NamedTuple(a=np.arange(3))
    assert NamedTuple(a=np.zeros(0)) != NamedTuple(a=None)
    node = tree()
    assert node[1:3] == node[1:3]
    assert node[1:3] != node[0:2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(node)


@given(st.dictionaries(st.text(min_size=1).filter(lambda s: s[:2] != "__"), st.integers()))
def test_any_key_of_a_dict_space_can_be_a_field(fields: dict[str, int]) -> None:
    node = NamedTuple._make(fields)
    assert node._asdict() == fields
    assert NamedTuple(**fields)._replace(**fields) == node
    assert pickle.loads(pickle.dumps(node)) == node


@pytest.mark.parametrize("name", ["self", "cls", "fields", "_0", "count", "index", "name", "T"])
def test_names_that_code_likes_to_use_can_be_fields(name: str) -> None:
    node = NamedTuple(**{name: 5})
    assert getattr(node, name) == 5
    assert node._replace(**{name: 6})._asdict() == {name: 6}
    array = Array((2, 1), np.int32)
    arrays = NamedArrayTuple(**{name: array})
    arrays[1] = {name: 7}
    assert np.asarray(getattr(arrays[1], name)).tolist() == [7]


def test_copies_and_pickles_keep_class_and_values() -> None:
    node = NamedTuple(a=np.arange(3), b=NamedTuple(c="x", d=None))
    for other in (pickle.loads(pickle.dumps(node)), copy.deepcopy(node), copy.copy(node)):
        assert type(other) is NamedTuple
        assert other == node
    samples = Samples(agent=NamedTuple(a=1), env=None)
    assert type(pickle.loads(pickle.dumps(samples))) is Samples


def test_declared_samples_name_what_is_missing() -> None:
    with pytest.raises(TypeError, match=r"AgentSamples: fields \['agent_info'\] are missing"):
        AgentSamples(action=1)
    with pytest.raises(TypeError, match=r"EnvSamples: fields \['truncated', 'done', 'env_info'\]"):
        EnvSamples(observation=1, reward=2, terminated=3)
    with pytest.raises(TypeError, match=r"Samples: fields \['env'\]"):
        Samples(agent=1)


# ---------------------------------------------------------------------- writing


def values(node: NamedArrayTuple) -> dict[str, Any]:
    return {
        "reward": np.asarray(node.reward).tolist(),
        "observation": np.asarray(node.observation).tolist(),
        "count": np.asarray(node.env_info.count).tolist(),
    }


@pytest.mark.parametrize("kind", ["dict", "node", "tuple"])
def test_writing_by_dict_node_or_tuple(kind: str) -> None:
    node = tree()
    inner: Any = {"count": 7, "extra": None}
    value: Any = {"reward": 1.5, "observation": [1, 2, 3], "env_info": inner}
    if kind == "node":
        value = NamedTuple(**{**value, "env_info": NamedTuple(**inner)})
    elif kind == "tuple":
        value = (1.5, [1, 2, 3], (7, None))
    node[2, 1] = value
    expected_reward = np.zeros((4, 2))
    expected_reward[2, 1] = 1.5
    expected_observation = np.zeros((4, 2, 3))
    expected_observation[2, 1] = [1, 2, 3]
    expected_count = np.zeros((4, 2), int)
    expected_count[2, 1] = 7
    assert values(node) == {
        "reward": expected_reward.tolist(),
        "observation": expected_observation.tolist(),
        "count": expected_count.tolist(),
    }


def test_scalar_spreads_over_all_fields_and_rows() -> None:
    node = tree()
    node[1:3] = 2
    node[0] = np.float32(3)
    rows = np.array([3, 2, 2, 0])
    assert values(node)["reward"] == np.repeat(rows[:, None], 2, 1).tolist()
    assert values(node)["observation"] == np.tile(rows[:, None, None], (1, 2, 3)).tolist()
    assert values(node)["count"] == np.repeat(rows[:, None], 2, 1).tolist()


def test_writing_one_part_of_a_tree_into_another() -> None:
    source, target = tree(), tree()
    source[1] = 4
    target[3] = source[1]
    target[4 - 2] = {**source[1]._asdict(), "reward": 9}
    assert values(target)["reward"] == [[0, 0], [0, 0], [9, 9], [4, 4]]
    assert values(target)["count"] == [[0, 0], [0, 0], [4, 4], [4, 4]]


def test_writing_reaches_padding_lists_and_masks() -> None:
    node = NamedArrayTuple(a=RotatingArray((4, 2), np.float32), b=RotatingArray((4, 2), np.int32))
    node[4] = 5
    node[[0, 3], [1, 0]] = {"a": [1, 2], "b": [3, 4]}
    assert np.asarray(node.a[0:5]).tolist() == [[0, 1], [0, 0], [0, 0], [2, 0], [5, 5]]
    assert np.asarray(node.b[0:5]).tolist() == [[0, 3], [0, 0], [0, 0], [4, 0], [5, 5]]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, TypeError, r"cannot write None into \['reward', 'observation', 'env_info'\]"),
        ({"reward": 1, "env_info": 2}, ValueError, r"unknown \[\], missing \['observation'\]"),
        (
            {"reward": 1, "observation": 2, "env_info": 3, "prize": 4},
            ValueError,
            r"unknown \['prize'\], missing \[\]",
        ),
        (NamedTuple(reward=1), ValueError, r"missing \['observation', 'env_info'\]"),
        ((1, 2), ValueError, "expected a tuple of 3 values for the fields .*, got 2"),
        (np.zeros(3), TypeError, r"got an array of shape \(3,\)"),
        ([1, 2, 3], TypeError, r"got an array of shape \(3,\)"),
        (
            {"reward": 1, "observation": None, "env_info": 3},
            TypeError,
            "cannot write None into 'observation'",
        ),
        (
            {"reward": 1, "observation": 2, "env_info": {"count": 1, "amount": 2}},
            ValueError,
            r"unknown \['amount'\]",
        ),
        (
            {"reward": 1, "observation": 2, "env_info": None},
            TypeError,
            r"into \['count', 'extra'\]",
        ),
    ],
)
def test_write_that_does_not_fit_is_refused_and_writes_nothing(
    value: Any, error: type[Exception], text: str
) -> None:
    node = tree()
    with pytest.raises(error, match=text):
        node[0] = value
    assert values(node) == values(tree())


def test_field_that_is_none_is_skipped_in_every_way() -> None:
    node = NamedArrayTuple(a=Array((2, 1), np.int32), b=None)
    for number, value in enumerate([{"a": 0}, {"a": 1, "b": 5}, (2, None), (3, 8), 4]):
        node[1] = value
        assert np.asarray(node.a).tolist() == [[0], [number]]
        assert node.b is None
        assert node[0].b is None


# ---------------------------------------------------------------------- views


def test_index_applies_to_all_fields() -> None:
    node = tree()
    view = node[1:3, 0]
    assert type(view) is NamedArrayTuple
    assert view._fields == node._fields
    assert view.reward == node.reward[1:3, 0]
    assert view.env_info.count == node.env_info.count[1:3, 0]
    assert view.env_info.extra is None
    assert view[1].observation == node.observation[2, 0]


def test_view_of_samples_is_samples() -> None:
    samples = Samples(agent=AgentSamples(action=Array((2, 1), bool), agent_info=None), env=None)
    view = samples[0]
    assert type(view) is Samples
    assert type(view.agent) is AgentSamples
    assert view.agent.action == samples.agent.action[0]


class CountsIndexing(Array):
    __slots__ = ()
    calls = 0

    def __getitem__(self, location: Any) -> Any:
        CountsIndexing.calls += 1
        return super().__getitem__(location)


def test_only_the_fields_asked_for_are_indexed_and_once() -> None:
    node = NamedArrayTuple(**{name: CountsIndexing((4, 2), bool) for name in "abc"})
    CountsIndexing.calls = 0
    view = node[1]
    assert CountsIndexing.calls == 0
    assert view.b is view.b
    assert CountsIndexing.calls == 1


def test_view_keeps_its_meaning_when_the_index_changes() -> None:
    node = NamedArrayTuple(a=Array((4, 2), np.int32))
    node[:] = {"a": np.arange(8).reshape(4, 2)}
    rows, mask = [2, 0], np.array([True, False, False, True])
    pair = ([1, 2], [0, 1])
    by_rows, by_mask, by_pair = node[rows], node[mask], node[pair]
    rows[:] = [3, 3]
    mask[:] = True
    pair[0][:] = [0, 0]
    assert np.asarray(by_rows.a).tolist() == [[4, 5], [0, 1]]
    assert np.asarray(by_mask.a).tolist() == [[0, 1], [6, 7]]
    assert np.asarray(by_pair.a).tolist() == [2, 5]


def test_view_shows_what_is_written_later() -> None:
    node = tree()
    view = node[1:3]
    row = view[0]
    node[1] = 6
    assert np.asarray(view.reward).tolist() == [[6, 6], [0, 0]]
    view[1] = 7
    assert np.asarray(node.env_info.count).tolist() == [[0, 0], [6, 6], [7, 7], [0, 0]]
    assert np.asarray(row.env_info.count).tolist() == [6, 6]


def test_view_of_a_replay_stays_where_it_was_when_the_window_moves() -> None:
    node = windowed()
    view, row, inner = node[1:3], node[0], node.inner[2]
    assert np.asarray(view.data)[:, 0].tolist() == [5, 6]
    node.data.rotate()
    assert np.asarray(view.data)[:, 0].tolist() == [5, 6]
    assert np.asarray(view.inner.data)[:, 0].tolist() == [5, 6]
    assert np.asarray(row.inner.data)[0] == 4
    assert np.asarray(inner.data)[0] == 6
    assert np.asarray(view[1].data)[0] == 6
    assert np.asarray(node[1:3].data)[:, 0].tolist() == [9, 10]
    view[0] = -1
    assert np.asarray(node.data.full)[5].tolist() == [-1, -1]


def test_view_keeps_its_place_when_padded_arrays_rotate() -> None:
    array = RotatingArray((4, 2), np.int32)
    node = NamedArrayTuple(a=array)
    node[:] = {"a": np.arange(8).reshape(4, 2)}
    view = node[3]
    array.rotate()  # row 3 is carried to -1, and stays where it was
    assert np.asarray(view.a).tolist() == [6, 7]
    assert np.asarray(node[-1].a).tolist() == [6, 7]


def test_pickled_arrays_of_a_view_show_the_same_place() -> None:
    node = NamedArrayTuple(a=ManagedMemoryArray((4, 2), np.int32), b=None)
    node[2] = 5
    other = pickle.loads(pickle.dumps(node[1:3]))
    assert np.asarray(other.a).tolist() == [[0, 0], [5, 5]]
    other[0] = 8
    assert np.asarray(node.a).tolist() == [[0, 0], [8, 8], [5, 5], [0, 0]]
    assert other.b is None
    resource_sharer.stop(timeout=5)
