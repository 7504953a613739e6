from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from same_actions import same

from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.distributed.remote.games.space_schema import action_schema
from parllel.distributed.wire import (
    WireError,
    action_from_json,
    from_json,
    json_bytes,
    parse_json,
    to_json,
)

SHAPES = st.lists(st.integers(0, 3), max_size=2).map(tuple)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=3)


@st.composite
def boxes(draw):
    """Boxes of every dtype, with and without bounds."""
    dtype = np.dtype(draw(st.sampled_from(["?", "i1", "u1", "i4", "i8", "u8", "f2", "f4", "f8"])))
    if dtype.kind == "f":
        ends = st.sampled_from([-np.inf, -2.5, 0.0, 0.1, 7.0, np.inf])
    elif dtype.kind == "b":
        ends = st.booleans()
    else:
        # Gymnasium cannot draw from all of 64 bits.
        info = np.iinfo(dtype)
        ends = st.sampled_from([max(int(info.min), -(2**40)), 0, 1, min(int(info.max), 2**40)])
    low, high = sorted(draw(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1])))
    shape = draw(SHAPES)
    return spaces.Box(np.full(shape, low, dtype), np.full(shape, high, dtype), shape, dtype)


SPACES = st.recursive(
    st.one_of(
        boxes(),
        st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-9, 9)),
        st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 9), min_size=1, max_size=3)),
        st.builds(spaces.MultiBinary, st.integers(1, 4)),
    ),
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, max_size=3).map(spaces.Dict),
        st.lists(inner, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


@given(SPACES, st.integers(0, 2**31))
def test_every_action_comes_back_unchanged_through_each_door(space, seed):
    space.seed(seed)
    drawn = space.sample()
    values = parse_json(json_bytes(to_json(space, drawn)))
    assert same(from_json(space, values, check_bounds=True), drawn)

    door = GivenAction(space)
    chosen = door.of(drawn)
    assert door.to_json(chosen) == values
    assert same(door.from_json(values), chosen)
    for clip in (False, True):
        action = action_from_json(space, values, clip=clip)
        assert same(action, chosen)
        assert space.contains(action)
        if isinstance(space, spaces.Discrete):
            assert type(action) is type(chosen) is type(drawn)
    jsonschema.validate(json.loads(json.dumps(values)), action_schema(space))


FORCE = spaces.Box(-1, np.float32([1, np.inf]), (2,), np.float32)
CAR = spaces.Dict(gear=spaces.Discrete(3, start=1), force=FORCE, turn=spaces.Box(-2.0, 2.0, ()))


def car(**other):
    return {"gear": 1, "force": [0, 0], "turn": 0, **other}


@pytest.mark.parametrize(
    ("values", "clipped"),
    [
        (car(force=[5, -0.5]), ([1, -0.5], 0)),
        (car(force=[-7, "Infinity"]), ([-1, np.inf], 0)),
        (car(turn=-3), ([0, 0], -2)),
    ],
)
def test_numbers_outside_of_a_box_are_clipped_only_where_that_is_asked_for(values, clipped):
    action = action_from_json(CAR, values, clip=True)
    assert (action["force"].tolist(), action["turn"].tolist()) == clipped
    assert CAR.contains(action)
    with pytest.raises(WireError, match=r"(force|turn).*: expected from -\d.0 to .*, got "):
        action_from_json(CAR, values)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (car(gear=0), r"^gear: expected from 1 to 3, got 0$"),
        (car(gear=4), r"^gear: expected from 1 to 3, got 4$"),
        (car(gear=1.0), r"^gear: expected an integer from .*, got 1\.0$"),
        (car(gear=True), r"^gear: expected an integer from .*, got true$"),
        (car(gear=[1]), r"^gear: expected an integer from .*, got a list of 1$"),
        (car(force=["NaN", 0]), r"^force\[0\]: expected from -1\.0 to 1\.0, got nan$"),
        (car(force=0.5), r"^force: expected a list of 2, got 0\.5$"),
        (car(force=[0, None]), r"^force\[1\]: expected a number .*, got null$"),
        ({"gear": 1}, r"^expected an object with the keys \['gear', 'force', 'turn'\], got an "),
        ([1], r"^expected an object with the keys .*, got a list of 1$"),
    ],
)
def test_what_is_no_action_is_named_in_one_sentence(values, message, clip):
    with pytest.raises(WireError, match=message):
        action_from_json(CAR, values, clip=clip)
    with pytest.raises(WireError, match=message):
        GivenAction(CAR).from_json(values)
