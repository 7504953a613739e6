from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from playing import always

from parllel.distributed.remote import evaluate, make
from parllel.distributed.remote.games.space_schema import space_schema
from parllel.distributed.wire import from_json


def left_then_right(observation, configuration):
    """Balance a little: push to the side to which the pole falls."""
    return int(observation["observation"][2] > 0)


def test_an_episode_is_the_environments_own():
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=5)
    total, n_steps, over = 0.0, 0, False
    while not over:
        action = int(observation[2] > 0)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, n_steps, over = total + reward, n_steps + 1, terminated or truncated
    env.close()
    with make("gymnasium/CartPole-v1", {"seed": 5}) as played:
        steps = played.run([left_then_right])
        assert played.info["seed"] == 5
    assert len(steps) == n_steps + 1
    assert steps[-1][0]["reward"] == total
    assert steps[-1][0]["status"] == "DONE"
    assert steps[-1][0]["info"] == {"reward": 1.0, "terminated": True, "truncated": False}
    # The numbers come back with the same bits.
    shown = from_json(env.observation_space, steps[-1][0]["observation"]["observation"])
    np.testing.assert_array_equal(shown, observation)


def test_the_specification_is_made_of_spaces():
    with make("gymnasium/CartPole-v1") as env:
        assert env.specification["agents"] == [1]
        expected = {"type": "integer", "minimum": 0, "maximum": 1, "default": 0}
        assert env.specification["action"] == expected
        # The time limit of the environment itself comes first.
        assert env.configuration["episodeSteps"] == 501


def test_a_replay_is_rebuilt_by_its_seed_and_its_actions():
    with make("gymnasium/CartPole-v1") as env:
        env.run([left_then_right])
        replay = env.to_json()
    with make("gymnasium/CartPole-v1", info=replay["info"], steps=replay["steps"][:6]) as again:
        # It goes on where it was.
        again.step([replay["steps"][6][0]["action"]])
        assert again.steps == replay["steps"][:7]
    with pytest.raises(
        ValueError, match=r"expected the \"seed\" of the replayed episode, got None"
    ):
        make("gymnasium/CartPole-v1", steps=replay["steps"])
    other = {"seed": replay["info"]["seed"] + 1}
    with pytest.raises(ValueError, match=r"steps\[0\] differs when .* another seed"):
        make("gymnasium/CartPole-v1", info=other, steps=replay["steps"])


def test_seeds_of_later_episodes_are_derived_from_that_of_the_configuration():
    def seeds():
        found = []
        evaluate(
            "gymnasium/CartPole-v1",
            [left_then_right],
            {"seed": 9, "episodeSteps": 3},
            episodes=3,
            on_episode=lambda env: found.append(env.info["seed"]),
        )
        return found

    first = seeds()
    assert first[0] == 9
    assert len(set(first)) == 3
    assert seeds() == first


@pytest.mark.parametrize("bad", [2, -1, "left", 0.5, [0], None], ids=str)
def test_what_is_no_action_of_the_space_is_invalid(bad):
    with make("gymnasium/CartPole-v1") as env:
        steps = env.run([always(bad)]) if bad is not None else env.run([None])
    if bad is None:
        # Without an agent the default is played.
        assert steps[-1][0]["status"] == "DONE"
        return
    (state,) = steps[-1]
    assert (state["status"], state["action"], state["reward"]) == ("INVALID", None, None)
    assert len(steps) == 2
    assert state["info"]["reason"].startswith("action: ")


def test_actions_are_clipped_to_the_bounds_of_a_box_as_cages_do():
    with make("gymnasium/Pendulum-v1", {"seed": 1}) as env:
        far = env.step([[100.0]])
        env.load(env.steps[:1])
        near = env.step([[2.0]])
    assert far[0]["observation"] == near[0]["observation"]
    with make("gymnasium/Pendulum-v1") as env:
        assert env.step([["NaN"]])[0]["status"] == "INVALID"


def test_masks_are_shown_and_kept():
    with make("gymnasium/Taxi-v4", {"seed": 3}) as env:
        mask = env.observation(0)["action_mask"]
        assert len(mask) == 6
        assert 0 < sum(mask) < 6
        forbidden = mask.index(0)
        state = env.step([forbidden])[0]
    assert state["status"] == "INVALID"
    assert (
        state["info"]["reason"]
        == f"action: expected an action that action_mask allows, got {forbidden}"
    )


def test_random_keeps_to_the_mask():
    with make("gymnasium/Taxi-v4", {"seed": 3, "episodeSteps": 50}) as env:
        assert env.run(["random"])[-1][0]["status"] == "DONE"


def test_it_is_drawn_by_playing_it_again():
    with make("gymnasium/CartPole-v1") as env:
        env.step([1])
        env.step([0])
        picture = env.render("rgb_array")
        assert picture.dtype == np.uint8
        assert picture.shape == (400, 600, 3)
        # The episode itself goes on.
        assert env.step([1])[0]["observation"]["step"] == 3
    with make("gymnasium/FrozenLake-v1") as env:
        assert "FHFH" in env.render("ansi")


@pytest.mark.parametrize("name", ["Nothing-v0", "no.module:Nothing-v0", "../x", "a b"])
def test_unknown_environments_are_named(name):
    with pytest.raises(ValueError, match=r"environment .?gymnasium/"):
        make(f"gymnasium/{name}")


def test_environments_whose_values_have_no_json_are_refused():
    space = gym.spaces.Graph(gym.spaces.Discrete(2), None)
    with pytest.raises(ValueError, match="whose values have a JSON form, got Graph"):
        space_schema(space)
