"""Descriptions of MiniGrid's views, against what stands in the environment's own grid."""

from __future__ import annotations

import re

import gymnasium as gym
import minigrid  # noqa: F401 - registers them
import numpy as np
import pytest
from minigrid.core import constants

from parllel.distributed.operators.llm.minigrid_view import (
    COLOURS,
    DOOR_STATES,
    KINDS,
    describe_view,
)

ENVS = (
    "BabyAI-GoToRedBall-v0",
    "BabyAI-BossLevel-v0",
    "MiniGrid-LavaCrossingS9N2-v0",
    "MiniGrid-FourRooms-v0",
    "MiniGrid-LockedRoom-v0",
)


def test_numbers_are_those_of_minigrid():
    assert {name: n for n, name in enumerate(KINDS)} == constants.OBJECT_TO_IDX
    assert {name: n for n, name in enumerate(COLOURS)} == constants.COLOR_TO_IDX
    assert {name: n for n, name in enumerate(DOOR_STATES)} == constants.STATE_TO_IDX


def name_of(thing):
    if thing.type == "door":
        state = "locked" if thing.is_locked else "open" if thing.is_open else "closed"
        return f"{'an' if state == 'open' else 'a'} {state} {thing.color} door"
    if thing.type in ("wall", "lava"):
        return {"wall": "a wall", "lava": "lava"}[thing.type]
    return f"a {thing.color} {thing.type}" + (" square" if thing.type == "goal" else "")


def seen_in(env):
    """Return what the environment's grid holds where the agent can see: {(ahead, right): thing or None}."""
    found = {}
    forward, right = env.dir_vec, env.right_vec
    _, visible = env.gen_obs_grid()
    for x in range(env.grid.width):
        for y in range(env.grid.height):
            if env.in_view(x, y) and visible[env.relative_coords(x, y)]:
                away = np.array([x, y]) - env.agent_pos
                found[int(away @ forward), int(away @ right)] = env.grid.get(x, y)
    return found


def place_of(text):
    """Return (ahead, right) of "2 steps ahead and 1 step to the left"."""
    ahead = re.search(r"(\d+) steps? ahead", text)
    side = re.search(r"(\d+) steps? to the (left|right)", text)
    right = 0 if side is None else int(side[1]) * (1 if side[2] == "right" else -1)
    return (0 if ahead is None else int(ahead[1])), right


def way_in(seen, ahead, right):
    n_free, place = 0, (ahead, right)
    while place in seen and seen[place] is None:
        n_free += 1
        place = place[0] + ahead, place[1] + right
    end = name_of(seen[place]) if place in seen else "nothing that you can see"
    free = "1 free cell, then " if n_free == 1 else f"{n_free} free cells, then " if n_free else ""
    return free + end


@pytest.mark.parametrize("env_id", ENVS)
@pytest.mark.few(2)
def test_all_that_the_agent_sees_is_said_and_nothing_else(env_id):
    env = gym.make(env_id).unwrapped
    generator = np.random.default_rng(len(env_id))
    n_things = n_carried = 0
    for seed in range(4):
        observation, _ = env.reset(seed=seed)
        for _ in range(60):
            # Mostly forward, and often what picks up and opens.
            action = generator.choice([0, 1, 2, 3, 4, 5], p=[0.15, 0.15, 0.35, 0.15, 0.05, 0.15])
            observation, _, terminated, truncated, _ = env.step(int(action))
            if terminated or truncated:
                break
            seen = seen_in(env)
            lines = describe_view(observation["image"], observation["direction"]).splitlines()
            said = sorted(
                (place_of(line), line[2:].partition(",")[0]) for line in lines if line[0] == "-"
            )
            assert said == sorted(
                (place, name_of(thing))
                for place, thing in seen.items()
                if thing is not None and thing.type != "wall" and place != (0, 0)
            )
            n_things += len(said)
            names = ("Ahead", "To your left", "To your right")
            for name, ahead, right in zip(names, (1, 0, 0), (0, -1, 1), strict=True):
                assert f"{name}: {way_in(seen, ahead, right)}." in lines
            looks = {(1, 0): "east", (0, 1): "south", (-1, 0): "west", (0, -1): "north"}
            assert lines[0] == f"You look {looks[tuple(env.dir_vec.tolist())]}."
            carried = "nothing" if env.carrying is None else name_of(env.carrying)
            assert lines[-1] == f"You carry {carried}."
            n_carried += env.carrying is not None
    env.close()
    assert n_things or "FourRooms" in env_id
    assert n_carried or "BabyAI" not in env_id


def test_a_view_reads_so():
    image = np.zeros((7, 7, 3), np.uint8)
    image[:, 3:] = (1, 0, 0)
    image[4, 4] = (6, 0, 0)
    image[3, 3] = (4, 2, 1)
    image[1, 6] = (2, 5, 0)
    image[3, 6] = (5, 4, 0)
    assert describe_view(image, 3) == (
        "You look north.\n"
        "Ahead: 2 free cells, then a closed blue door.\n"
        "To your left: 1 free cell, then a wall.\n"
        "To your right: 3 free cells, then nothing that you can see.\n"
        "You see:\n"
        "- a red ball, 2 steps ahead and 1 step to the right\n"
        "- a closed blue door, 3 steps ahead\n"
        "You carry a yellow key."
    )


@pytest.mark.parametrize(
    ("image", "match"),
    [
        (np.ones((6, 6, 3)), r"odd W, such as \(7, 7, 3\), got \(6, 6, 3\)"),
        (np.ones((56, 7, 3)), "odd W"),
        (np.ones(147), r"got \(147,\)"),
        (np.full((7, 7, 3), 10), "remove wrappers such as FullyObsWrapper"),
    ],
)
def test_other_pictures_are_refused(image, match):
    with pytest.raises(ValueError, match=match):
        describe_view(image)
