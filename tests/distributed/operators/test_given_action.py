from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from same_actions import same

from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.policies.action_adapter import ActionAdapter

HALF_OPEN = spaces.Box(-1, np.float32([1, np.inf]), (2,), np.float32)
SPACES = [
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiBinary(4),
    HALF_OPEN,
    spaces.Box(-np.inf, np.inf, (2,), np.float64),
    spaces.Box(0, 200, (2, 2), np.uint8),
    spaces.Box(-5, 5, (2,), np.int64),
    spaces.Box(0, 2**64 - 1, (1,), np.uint64),
    spaces.Box(-1, 1, (), np.float64),
    spaces.Dict(a=spaces.Tuple((spaces.Discrete(2), HALF_OPEN)), b=spaces.MultiBinary(2)),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_environment_is_given_what_cages_would_give_it(space):
    given, one = GivenAction(space), ActionAdapter(space)
    space.seed(0)
    for _ in range(20):
        chosen = space.sample()
        assert same(given.of(chosen), one.of(chosen))
        assert space.contains(given.of(chosen))


@pytest.mark.parametrize(
    ("space", "chosen"),
    [
        (HALF_OPEN, np.array([-3.0, 7.0])),  # clipped, in another dtype
        (HALF_OPEN, [np.nan, -2]),
        (spaces.Box(0, 200, (2,), np.uint8), [300, -1]),
        (spaces.Box(0, 200, (2,), np.uint8), np.int8([-1, 5])),
        (spaces.MultiDiscrete([3, 3]), np.int8([1, 2])),
        (spaces.Discrete(2), np.bool_(True)),
        (spaces.Discrete(2), np.array(1, np.uint8)),
    ],
    ids=str,
)
def test_actions_of_other_types_are_read_alike(space, chosen):
    assert same(GivenAction(space).of(chosen), ActionAdapter(space).of(chosen))


@pytest.mark.parametrize(
    ("space", "chosen"),
    [
        (spaces.Discrete(3), 1.0),
        (spaces.Discrete(3), [1]),
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3, start=2), 1),
        (spaces.Discrete(3), 10**30),
        (spaces.Discrete(3), "1"),
        (HALF_OPEN, 0.5),  # would be broadcast
        (HALF_OPEN, [0, 0, 0]),
        (HALF_OPEN, [[0], 0]),
        (HALF_OPEN, "ab"),
        (spaces.MultiBinary(2), [0.5, 1]),
        (spaces.Dict(a=HALF_OPEN), {"b": [0, 0]}),
        (spaces.Dict(a=HALF_OPEN), [0, 0]),
        (spaces.Tuple([HALF_OPEN]), ([0, 0], [0, 0])),
        (spaces.Text(2), "abc"),
        (spaces.Sequence(spaces.Discrete(2)), (3,)),
    ],
    ids=str,
)
def test_other_actions_are_refused(space, chosen):
    with pytest.raises(ValueError, match=r"expected an action of .*, got"):
        GivenAction(space).of(chosen)


def test_nothing_is_shared():
    given, chosen = GivenAction(HALF_OPEN), np.zeros(2, np.float32)
    first = given.of(chosen)
    chosen += 1
    assert first.tolist() == [0, 0]
