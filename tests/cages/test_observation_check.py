"""Which numbers an observation may hold, and which the checks refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cage_makers import MAKERS, bind
from gymnasium import spaces

from parllel.cages.stepping.checks import check_reset, check_step
from parllel.cages.stepping.observation_check import ObservationCheck
from parllel.testing.cages.cage_hooks import run, run_rows
from parllel.testing.faulty_envs import MalformedEnv

INF = np.inf
BOX: Any = spaces.Box(-1, 1, (3,), np.float32)
HALF: Any = spaces.Box(0, INF, (3,), np.float64)
MIXED: Any = spaces.Box(np.array([-INF, 0, -50]), np.array([INF, 1, INF]), dtype=np.float64)


def ones(value: float, dtype: Any = np.float32) -> Any:
    return np.array([0, value, 0], dtype)


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (BOX, ones(1)),
        (BOX, ones(np.nextafter(np.float32(1), np.float32(2)))),
        (BOX, ones(1 + 1e-9, np.float64)),
        (BOX, ones(-1.01)),
        (BOX, ones(3)),
        (BOX, [0, 1, 0]),
        (HALF, ones(3e38, np.float64)),
        (HALF, ones(-1e-12, np.float64)),
        (MIXED, np.array([-1e30, 1.5, -80])),
        (spaces.Box(0, np.finfo(np.float32).max, (3,), np.float32), ones(3e38)),
        (spaces.Box(0, 1, ()), 0.5),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0, 255])),
        (spaces.MultiDiscrete([3, 2], start=[5, 0]), np.array([7, 1])),
    ],
    ids=str,
)
def test_numbers_in_and_next_to_the_bounds_pass(space: Any, observation: Any) -> None:
    ObservationCheck(space)(observation, "observation")


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (BOX, ones(3.5), r"from -1\.0 to 1\.0, got 3\.5 at 1$"),
        (BOX, ones(255), r"from -1\.0 to 1\.0, got 255\.0 at 1$"),
        (BOX, ones(-3.1, np.float64), r"from -1\.0 to 1\.0, got -3\.1 at 1$"),
        (HALF, ones(-1.5), r"from 0\.0 to inf, got -1\.5 at 1$"),
        (MIXED, np.array([0, 2.5, 0]), r"got 2\.5 at 1$"),
        (MIXED, np.array([0, 0, -101]), r"got -101 at 2$"),
        (spaces.Box(0, 1, ()), 2.5, r"from 0\.0 to 1\.0, got 2\.5$"),
        (spaces.Box(0, 1, (2, 2)), np.array([[0, 0], [9.0, 0]]), r"got 9\.0 at \(1, 0\)$"),
        (spaces.Box(-INF, INF, (3,)), ones(INF), r"finite as float32, got inf at 1$"),
        (spaces.Box(-INF, INF, (3,)), ones(-INF), r"finite as float32, got -inf at 1$"),
        (BOX, ones(INF), r"finite as float32, got inf at 1$"),
        (HALF, ones(1e39, np.float64), r"finite as float32, got 1e\+39 at 1$"),
        (HALF, ones(np.nan), r"got NaN at 1$"),
        (spaces.Box(0, 9, (2,), np.int64), np.array([0, 10]), r"from 0 to 9, got 10 at 1$"),
        (spaces.Discrete(3, start=4), 3, r"from 4 to 6, got 3$"),
        (spaces.MultiBinary(2), np.array([0, 2]), r"from 0 to 1, got 2 at 1$"),
    ],
    ids=str,
)
def test_numbers_of_another_scale_are_refused(space: Any, observation: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^observation: expected numbers.*{message}"):
        ObservationCheck(space)(observation, "observation")


@pytest.mark.parametrize("value", [INF, -INF, 1e39])
@pytest.mark.parametrize("check", ["first_episode", "always"])
def test_a_cage_refuses_what_32_bits_do_not_hold(value: float, check: str) -> None:
    at = 1 if check == "first_episode" else 3  # of episodes of two steps
    factories = {
        "observation": MalformedEnv(
            "observation", lambda: ones(value, np.float64), number=at, lengths=2
        ),
        "reward": MalformedEnv("reward", lambda: value, number=at, lengths=2),
    }
    for part, env in factories.items():
        with MAKERS["Cage"](lambda env=env: env, seed=1, check=check) as cage:
            bind(cage, env)
            run_rows(cage, at - 1)
            with pytest.raises(ValueError, match=f"{part}.*finite as float32"):
                run(cage, "start_row", at - 1)


NESTED = {"mark": np.zeros(1), "clock": (1, None)}


STEP = r"environment 0 .*observation of step: expected numbers, got None"
LEAF = r"observation\.clock\._1: expected numbers, got None"


@pytest.mark.parametrize(
    ("layout", "value", "message", "length"),
    [
        ("box", None, STEP, 1),  # with the end of an episode
        ("box", None, STEP, 2),
        ("dict", None, STEP, 1),
        ("dict", None, STEP, 2),
        ("dict", NESTED, LEAF, 2),
    ],
)
def test_none_is_refused_in_later_episodes_too(
    layout: str, value: Any, message: str, length: int
) -> None:
    env = MalformedEnv("observation", lambda: value, number=3, lengths=[2, length], layout=layout)
    with MAKERS["Cage"](lambda: env, seed=1) as cage:
        bind(cage, env)
        for start, t in (("reset", 0), ("row", 0), ("row", 1)):
            run(cage, f"start_{start}", t)
        with pytest.raises(TypeError, match=message):
            run(cage, "start_row", 2)


PICTURE = np.zeros((12, 12, 3), np.uint8)
SHOWN = r"an array uint8 \(12, 12, 3\)"


@pytest.mark.parametrize(
    ("check", "got"),
    [
        (
            lambda: check_step(({"eye": PICTURE}, 0.0, False, {}), "env"),
            rf"got \(\{{'eye': {SHOWN}\}}, 0\.0, False, \{{\}}\); "
            "Gymnasium's step returns five values: split done into terminated and truncated$",
        ),
        (lambda: check_step((PICTURE, PICTURE, False, False, {}), "env"), f"reward.*got {SHOWN}$"),
        (
            lambda: check_step((PICTURE, 0.0, np.ones(2), False, {}), "env"),
            r"array\(\[1\., 1\.\]\)$",
        ),
        (lambda: check_reset({"eye": PICTURE}, "env"), rf"got \{{'eye': {SHOWN}\}}; the info"),
        (lambda: check_reset((PICTURE,), "env"), rf"got \({SHOWN},\); the info"),
        (lambda: check_reset([PICTURE, {}], "env"), rf"got \[{SHOWN}, \{{\}}\]; the info"),
        (
            lambda: ObservationCheck(spaces.Dict({}))({"eye": PICTURE}, "seen"),
            rf"'eye': {SHOWN}\}}$",
        ),
        (lambda: ObservationCheck(spaces.Discrete(3))("x" * 500, "seen"), r"got 'x+\.\.\.x+'$"),
    ],
)
def test_a_message_shows_an_array_by_its_dtype_and_shape(check, got):
    with pytest.raises((TypeError, ValueError), match=got):
        check()
