from __future__ import annotations

import pytest

from parllel.distributed.operators.llm.answered import answered

NAMES = {"turn left": 0, "turn right": 1, "go forward": 2, "pick up": 3, "pickup": 3, "drop": 4}
BRIEF = {"left": 0, "forward": 2, "0": 0, "1": 1}


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("turn left", 0),
        ("**Turn left**", 0),
        ("I will go forward", 2),
        ("I will go forward.", 2),
        ("Action: pickup", 3),
        ("Action: **pick_up**\n\nThen I go forward to the door.", 3),
        ("> my next action is: `TURN-RIGHT`", 1),
        ('{"action": "go forward"}', 2),
        ('```json\n{"reason": "I turn left later", "action": "go forward"}\n```', None),
        ("```\nturn right\n```", 1),
        ("left", 0),
        ("Action: 1", 1),
        ("The ball is on my left, 1 step away. I turn left.", 0),
        ("The ball is on my left.", None),
        ("There is 1 wall ahead.", None),
        ("If I go forward I hit a wall.\nturn right", 1),
        ("If I go forward I hit a wall, so turn right", None),
        ("I go forward because that is nearer.\nI hope that this works.", 2),
        ("turn left or turn right", None),
        ("Do not go forward, turn left.", 0),
        ("I won't turn left.", None),
        ("I cannot go forward or turn left", None),
        ("I can\u2019t go forward, so I turn right", 1),
        ("I go forward instead of turn left", 2),
        ("Action: turn left\nWait, that is a wall.\nAction: turn right", 1),
        ("Action: fly\nturn left", None),
        ("<think>turn left? No: Action: turn left</think>go forward", 2),
        ("<think>turn left, turn left, and", None),
        ("Action: turn left? No, there is a wall.</think>\ngo forward", 2),
        ("pick up, pickup, PICK UP", 3),
        ("I turn leftover pizza", None),
        ("dropped", None),
        ("", None),
        ("  \n\t\n ", None),
        ("***", None),
        ("\x00\ud800 turn left", 0),
    ],
)
def test_exactly_one_named_action_is_understood(text, action):
    assert answered(text, NAMES, BRIEF) == action


def test_a_longer_name_is_not_its_part():
    names = {"up": 1, "up right": 2, "right": 3, "fire": 4, "up-right fire": 5}
    assert answered("I press UP_RIGHT_FIRE now", names) == 5
    assert answered("I press up right now", names) == 2
    assert answered("I press up, right?", names) is None


def test_of_long_answers_the_end_is_understood():
    assert answered("turn left " * 20_000 + "\n" + "not " * 20_000, NAMES) is None
    assert answered("not " * 20_000 + "\n" + "turn left " * 900, NAMES) == 0
    assert answered("<think>" * 20_000 + "turn left", NAMES) is None
    assert answered("my next " * 20_000, NAMES) is None
