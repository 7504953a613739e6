"""Copies of spaces with separate generators."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces

from parllel.cages.stepping.make_envs import seeded_action_space

SPACES = [
    spaces.Discrete(3, start=-1),
    spaces.Box(-1, np.array([1.0, np.inf]), dtype=np.float64),
    spaces.Box(0, 255, (2, 3), np.uint8),
    spaces.MultiDiscrete([2, 5], start=[1, -1]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
    spaces.MultiBinary((2, 2)),
    spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Tuple([spaces.Discrete(4)]))]),
    spaces.Text(4),
]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_a_seeded_copy_equals_the_space_and_draws_what_it_would(space):
    copied = seeded_action_space(space, 7)
    assert copied == space
    assert type(copied) is type(space)
    assert copied is not space
    other = copy.deepcopy(space)
    other.seed(7)
    for _ in range(5):
        one, two = copied.sample(), other.sample()
        # The keys too, and in their order.
        assert repr(one) == repr(two)


class OwnSpace(spaces.Discrete):
    pass


def test_a_space_of_another_class_is_copied_whole():
    space = OwnSpace(3)
    space.extra = [1]
    copied = seeded_action_space(space, 0)
    assert type(copied) is OwnSpace
    assert copied.extra == [1]


def test_without_a_seed_the_generator_is_copied():
    space = spaces.Discrete(1000)
    space.seed(3)
    copied = seeded_action_space(space, None)
    assert [copied.sample() for _ in range(5)] == [space.sample() for _ in range(5)]
