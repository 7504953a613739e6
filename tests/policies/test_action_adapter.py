from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from parllel.policies.action_adapter import ActionAdapter

BOX = spaces.Box(-1, np.float32([1, np.inf]), (2,), np.float32)
SPACES = [
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiBinary(4),
    BOX,
    spaces.Box(0, 200, (2, 2), np.uint8),
    spaces.Box(-1, 1, (), np.float64),
    spaces.Dict(a=spaces.Tuple((spaces.Discrete(2), BOX)), b=spaces.MultiBinary(2)),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_actions_of_the_space_arrive_as_they_are(space):
    one = ActionAdapter(space)
    space.seed(0)
    for _ in range(5):
        chosen = space.sample()
        came = one.of(chosen)
        assert space.contains(came)
        assert str(came) == str(chosen)  # types, too


def test_actions_are_clipped_before_they_are_cast():
    assert ActionAdapter(BOX).of(np.array([-3.0, 7.0])).tolist() == [-1, 7]
    pixels = ActionAdapter(spaces.Box(0, 200, (2,), np.uint8)).of([300, -1])
    assert (pixels.tolist(), pixels.dtype) == ([200, 0], np.uint8)


def test_nothing_is_shared():
    one, chosen = ActionAdapter(BOX), np.zeros(2, np.float32)
    first = one.of(chosen)
    one.of(chosen + 1)
    assert first.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("space", "chosen"),
    [
        (spaces.Discrete(3), 1.0),
        (spaces.Discrete(3), [1]),
        (BOX, 0.5),  # would be broadcast
        (BOX, [0, 0, 0]),
        (spaces.Dict(a=BOX), {"b": [0, 0]}),
    ],
    ids=str,
)
def test_other_actions_are_refused(space, chosen):
    with pytest.raises(ValueError, match=r"expected an action of .*, got"):
        ActionAdapter(space).of(chosen)
