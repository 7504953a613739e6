"""Generators and spaces draw on where they were."""

from __future__ import annotations

import numpy as np
import pytest
from env_replays import assert_same, through_file
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.envs.states.random_state import (
    generator_from,
    generator_state,
    load_space_state,
    space_state,
)

KINDS = ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]


@pytest.mark.parametrize("kind", KINDS)
def test_generators_go_on(kind, tmp_path):
    one = np.random.Generator(
        getattr(np.random, kind)(np.random.SeedSequence([1, 2], spawn_key=(3,)))
    )
    one.spawn(2)
    one.random(701)
    one.integers(0, 7, dtype=np.int32)  # leaves half a draw behind
    other = generator_from(through_file(generator_state(one), tmp_path))
    assert one.integers(0, 1000, 5, dtype=np.int32).tolist() == (
        other.integers(0, 1000, 5, dtype=np.int32).tolist()
    )
    assert one.normal(size=900).tobytes() == other.normal(size=900).tobytes()
    assert [child.random() for child in one.spawn(2)] == [
        child.random() for child in other.spawn(2)
    ]


def test_generators_of_others_are_refused():
    class Other:
        bit_generator = object()

    with pytest.raises(TypeError, match=r"expected a bit generator of .*PCG64.*, got object"):
        generator_state(Other())


@pytest.mark.parametrize(
    "nonsense", [{}, None, 3, {"sequence": None, "bits": {"bit_generator": "os"}}]
)
def test_what_is_no_generator_is_refused(nonsense):
    with pytest.raises(ValueError, match="not the state of a random generator"):
        generator_from(nonsense)


def box(n=2):
    return spaces.Box(-1, 1, (n,))


SPACES = {
    "Box": box,
    "Discrete": lambda: spaces.Discrete(1000),
    "MultiBinary": lambda: spaces.MultiBinary(9),
    "MultiDiscrete": lambda: spaces.MultiDiscrete([5, 9, 1000]),
    "Text": lambda: spaces.Text(9),
    "Dict": lambda: spaces.Dict(a=box(), b=spaces.Dict(c=box(3), d=spaces.Discrete(99))),
    "Tuple": lambda: spaces.Tuple([box(), spaces.Discrete(99), box()]),
    "OneOf": lambda: spaces.OneOf([box(), spaces.Discrete(99)]),
    "Sequence": lambda: spaces.Sequence(box()),
    "Stack": lambda: spaces.Sequence(box(), stack=True),
    "Graph": lambda: spaces.Graph(box(), spaces.Discrete(5)),
}


def samples(space, n=12):
    return [
        (draw.nodes, draw.edges, draw.edge_links)
        if isinstance(draw, spaces.GraphInstance)
        else draw
        for draw in (space.sample() for _ in range(n))
    ]


@pytest.mark.parametrize("name", SPACES)
def test_spaces_go_on(name, tmp_path):
    space, fresh = SPACES[name](), SPACES[name]()
    space.seed(3)
    samples(space, 5)
    load_space_state(fresh, through_file(space_state(space), tmp_path))
    assert_same(samples(space), samples(fresh))


@settings(max_examples=25)
@given(
    name=st.sampled_from(sorted(SPACES)),
    seed=st.none() | st.integers(0, 99),
    before=st.integers(0, 3),
    again=st.integers(0, 3),
)
def test_a_loaded_space_says_the_same_state(name, seed, before, again):
    space, fresh = SPACES[name](), SPACES[name]()
    if seed is not None:
        space.seed(seed)
    samples(space, before)
    samples(fresh, again)
    state = space_state(space)
    load_space_state(fresh, state)
    assert_same(space_state(fresh), state)
    if seed is not None:  # else one inside may have no generator yet
        assert_same(samples(space, 3), samples(fresh, 3))


def test_a_space_that_never_drew_has_no_generator():
    space = box()
    assert space_state(space)["np_random"] is None
    space.sample()
    load_space_state(space, space_state(box()))
    assert space._np_random is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("Box", "Discrete"), ("Dict", "Tuple"), ("Sequence", "Stack"), ("OneOf", "Tuple")],
)
def test_states_of_other_spaces_are_refused(one, other):
    with pytest.raises(ValueError, match=r"expected the state of .*, got the state of"):
        load_space_state(SPACES[one](), space_state(SPACES[other]()))


def test_a_dict_with_other_keys_is_refused():
    with pytest.raises(ValueError, match=r"spaces\.b.*got the state of .*spaces\.c"):
        load_space_state(spaces.Dict(a=box(), b=box()), space_state(spaces.Dict(a=box(), c=box())))


@pytest.mark.parametrize("nonsense", [None, 3, "state"])
def test_what_is_no_state_of_a_space_is_refused(nonsense):
    with pytest.raises(TypeError, match="expected its state as a dict"):
        load_space_state(box(), nonsense)
    with pytest.raises(ValueError, match="not the state of a random generator"):
        load_space_state(box(), {"class": "Box", "inside": {}, "np_random": nonsense or 3})
