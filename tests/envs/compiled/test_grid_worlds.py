"""Each compiled grid world returns the images, rewards and ends of MiniGrid's."""

from __future__ import annotations

import gymnasium as gym
import minigrid  # noqa: F401 (registers its environments)
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.wrappers import ImgObsWrapper
from step_pairs import check_equal

from parllel.envs.compiled import grid_worlds

IDS = {
    **{f"Empty{n}x{n}": f"MiniGrid-Empty-{n}x{n}-v0" for n in (5, 6, 8, 16)},
    **{f"EmptyRandom{n}x{n}": f"MiniGrid-Empty-Random-{n}x{n}-v0" for n in (5, 6)},
    "FourRooms": "MiniGrid-FourRooms-v0",
    **{f"DoorKey{n}x{n}": f"MiniGrid-DoorKey-{n}x{n}-v0" for n in (5, 6, 8, 16)},
}
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
# The numbers in MiniGrid's images.
WALL, DOOR, KEY, GOAL = 2, 4, 5, 8
# By the numbers of our cells: floor, wall, goal, key, and an open, closed and locked door.
KIND_OF_CELL = np.array([1, WALL, GOAL, KEY, DOOR, DOOR, DOOR])


def pair(name):
    return getattr(grid_worlds, name)(), ImgObsWrapper(gym.make(IDS[name]))


def wander(skill):
    """Return a function that chooses actions: with this probability, what a curious agent would do."""

    def choose(image, rng):
        kind, _, state = image[3, 5]
        if rng.random() < skill:
            if kind == KEY:
                return PICK_UP
            if kind == DOOR and state != 0:
                return TOGGLE
            if kind != WALL:
                return FORWARD
        return int(rng.integers(7))

    return choose


@pytest.mark.parametrize("name", IDS)
@settings(max_examples=6)
@given(seed=st.integers(0, 2**32), skill=st.sampled_from([0.0, 0.5, 0.8]))
@pytest.mark.few(2)
def test_it_returns_the_bits_of_minigrid(name, seed, skill):
    check_equal(*pair(name), seed, wander(skill), 150)


@pytest.mark.parametrize("name", IDS)
@pytest.mark.few(2)
def test_layouts_are_drawn_in_the_order_of_minigrid(name):
    env, reference = pair(name)
    for seed in range(200):
        image = env.reset(seed=seed)[0]
        np.testing.assert_array_equal(image, reference.reset(seed=seed)[0])
        grid = reference.unwrapped.grid.encode()[:, :, 0]
        ours = KIND_OF_CELL[env.grid]
        np.testing.assert_array_equal(ours, grid)
        assert (env.x, env.y) == tuple(reference.unwrapped.agent_pos)
    # Without a seed, a reset goes on with the same generator.
    for _ in range(20):
        np.testing.assert_array_equal(env.reset()[0], reference.reset()[0])


@pytest.mark.parametrize(
    ("name", "n_steps", "expected"),
    [
        ("Empty5x5", 600, {"terminated", "truncated"}),
        ("EmptyRandom6x6", 600, {"terminated", "truncated"}),
        ("FourRooms", 2000, {"terminated", "truncated"}),
        ("DoorKey5x5", 2000, {"terminated", "truncated"}),
    ],
)
@pytest.mark.few(2)
def test_ends_are_equal_too(name, n_steps, expected):
    ends = set()
    for seed, skill in ((0, 0.0), (1, 0.8)):
        ends |= check_equal(*pair(name), seed, wander(skill), n_steps)
    assert ends == expected


def test_keys_are_carried_and_dropped_and_doors_opened_and_closed():
    seen = set()

    def choose(image, rng):
        action = wander(0.6)(image, rng)
        kind, _, state = image[3, 5]
        carries = image[3, 6, 0] == KEY
        if kind == DOOR:
            seen.add((("open", "closed", "locked")[state], bool(carries)))
            return int(rng.choice([TOGGLE, FORWARD, DROP]))
        if carries and rng.random() < 0.05:
            seen.add("dropped")
            return DROP
        return action

    check_equal(*pair("DoorKey5x5"), 0, choose, 4000)
    doors = {(state, carries) for state in ("open", "closed") for carries in (True, False)}
    assert seen >= {"dropped", ("locked", True), ("locked", False), *doors}


def test_the_goal_may_be_reached_in_the_last_step():
    """Then an episode is both terminated and truncated, as in MiniGrid."""
    env, reference = pair("Empty5x5")
    env.reset(seed=0)
    reference.reset(seed=0)
    for i in range(100):
        action = {94: FORWARD, 95: FORWARD, 96: RIGHT, 97: DONE, 98: FORWARD, 99: FORWARD}.get(
            i, DONE
        )
        ours, theirs = env.step(action), reference.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]
    assert ours[1:4] == (1 - 0.9, True, True)


@pytest.mark.parametrize("name", IDS)
@pytest.mark.few(3)
def test_spaces_are_those_of_minigrid(name):
    env, reference = pair(name)
    assert env.observation_space == reference.observation_space
    assert env.action_space == reference.action_space
    assert env.metadata["render_fps"] == reference.metadata["render_fps"]
    assert env.functions.max_episode_steps == reference.unwrapped.max_steps


def test_a_picture_shows_the_cells_the_key_and_the_agent():
    env = grid_worlds.DoorKey5x5(render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    n = picture.shape[0] // 5
    assert picture.shape == (5 * n, 5 * n, 3)
    assert picture.dtype == np.uint8

    def tile(x, y):
        return picture[y * n : (y + 1) * n, x * n : (x + 1) * n]

    assert (tile(env.x, env.y) == (255, 0, 0)).all(axis=2).mean() > 0.15
    assert tuple(tile(3, 3)[n // 2, n // 2]) == (0, 255, 0)
    assert tuple(tile(0, 0)[n // 2, n // 2]) == (100, 100, 100)
    yellow = np.argwhere((picture == (255, 255, 0)).all(axis=2)).mean(axis=0) // n
    (key,) = np.argwhere(KIND_OF_CELL[env.grid] == KEY)
    assert tuple(yellow[::-1]) == tuple(key)
    turned = [picture]
    for _ in range(3):
        env.step(RIGHT)
        turned.append(env.render())
    assert len({one.tobytes() for one in turned}) == 4
