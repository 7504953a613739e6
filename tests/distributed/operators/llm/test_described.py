from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from parllel.distributed.operators.llm.answered import written_values
from parllel.distributed.operators.llm.described import (
    described,
    described_actions,
    documentation,
    shown_text,
)

LOW = np.array([-1.0, -np.inf, 0, -3.4e38], np.float32)
HIGH = np.array([1.0, np.inf, np.inf, 5], np.float32)


@pytest.mark.parametrize(
    ("space", "observation", "expected"),
    [
        (spaces.Discrete(4, start=2), np.int64(3), "observation: 3 (of 2 to 5)"),
        (
            spaces.Box(LOW, HIGH),
            np.array([0.123456, -2, 3, 1e6], np.float32),
            "observation[0]: 0.1235 (from -1 to 1)\nobservation[1]: -2\n"
            "observation[2]: 3 (at least 0)\nobservation[3]: 1e+06 (at most 5)",
        ),
        (
            spaces.Box(0, 255, (2, 2), np.uint8),
            np.array([[1, 2], [3, 4]], np.uint8),
            "observation:\n[[1, 2],\n [3, 4]]",
        ),
        (spaces.Box(0.0, 1.0, ()), np.array(0.5, np.float32), "observation: 0.5"),
        (spaces.Text(9), "go left", "go left"),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), "observation: [1, 0, 1]"),
        (
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Dict(c=spaces.Text(3))),
            {"a": 1, "b": {"c": "x"}, "action_mask": [1]},
            "a: 1 (of 0 to 1)\nb.c: x",
        ),
        (
            spaces.Tuple([spaces.Discrete(3), spaces.Text(3)]),
            (2, "x"),
            "0: 2 (of 0 to 2)\n1: x",
        ),
        (None, {"board": [[0, 1]], "mine": 3}, "board: [[0, 1]]\nmine: 3"),
        (None, [1, 2], "[1, 2]"),
    ],
)
def test_observations_are_described(space, observation, expected):
    assert described(space, observation) == expected


def test_a_picture_is_not_written_out():
    space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    said = described(space, space.sample())
    assert said == "observation: an array of shape [210, 160, 3], too large to be shown as text"


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3, start=5), "a whole number from 5 to 7"),
        (spaces.Box(-2.0, 2.0, (1,)), "a JSON list of numbers of shape [1], from -2.0 to 2.0"),
        (
            spaces.Box(np.array([0, 1]), np.array([2, 2]), dtype=np.int64),
            "a JSON list of whole numbers of shape [2], from [0, 1] to 2",
        ),
        (spaces.MultiDiscrete([2, 3]), "whole numbers from 0, each below that of [2, 3]"),
        (spaces.MultiBinary(4), "zeros and ones of shape [4]"),
        (spaces.Text(3), "in JSON, as a value of Text"),
    ],
)
def test_actions_are_described(space, expected):
    assert expected in described_actions(space)


def test_what_terminals_colour_has_brackets():
    assert shown_text("\nSF\x1b[41mF\x1b[0mH\n\x1b[2K") == "SF[F]H"


def test_documentation_is_what_players_need():
    with gym.make("CartPole-v1") as env:
        said = documentation(env)
    assert "0: Push cart to the left" in said
    assert "Cart Position" in said
    assert "gym.make" not in said


def test_an_environment_without_documentation_has_none():
    class Bare(gym.Env):
        pass

    assert documentation(Bare()) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Action: [0.5, -1]", [[0.5, -1]]),
        ("[1] is wrong, so\nAction: [2]", [[2]]),
        ("between [1] and [2]", [[1], [2]]),
        ("<think>Action: [9]</think>Action: -1.5", [-1.5]),
        ('```json\n{"throttle": [1], "n": 2}\n```', [{"throttle": [1], "n": 2}]),
        ("the [best] one is [0.1", [0.1]),
        ("nothing", []),
        ("[" * 20_000, []),
    ],
)
def test_values_are_found_in_prose(text, expected):
    assert written_values(text) == expected
