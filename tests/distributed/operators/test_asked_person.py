"""People who choose the actions of an environment away from a terminal."""

from __future__ import annotations

import os
import signal

import gymnasium as gym
import minigrid
import pytest
from answering_people import LONG_S, People
from keeping_viewer import KeepingViewer

from parllel.distributed.operators import OperatorConfig, OperatorLauncher
from parllel.distributed.operators.experiments.single_episodes import SingleEpisodes

LAKE = {"is_slippery": False}


def played_by(choose, config, folder, seed=5, **options):
    """Return what came of an episode, and the records of its steps."""
    steps = []
    with OperatorLauncher(folder, terminal=False) as launcher:
        handle = launcher.launch_operator(config, "run", interactive=True)
        episodes = SingleEpisodes(
            config, start_timeout_s=LONG_S, step_timeout_s=LONG_S, choose=choose, **options
        )
        outcomes = episodes.play(
            handle, 0, seed, before_step=lambda: None, record_step=steps.append
        )
    return outcomes[0], steps


def test_a_person_plays_by_names_and_keys_of_actions(tmp_path):
    env_id = "MiniGrid-Empty-5x5-v0"
    wanted = ["ArrowUp", "ArrowUp", "1", "2", "2"]
    people = People(
        lambda question: next(
            one["action"]
            for one in question["actions"]
            if wanted[len(people.asked) - 1] in one["keys"]
        )
    )
    pictures = KeepingViewer()
    config = OperatorConfig("human", "me", env_id)
    with people.answering() as choose:
        outcome, steps = played_by(choose, config, tmp_path, viewers=[pictures])
    assert people.error is None
    gym.register_envs(minigrid)
    env = gym.make(env_id)
    env.reset(seed=5)
    played = [env.step(action) for action in (2, 2, 1, 2, 2)]
    env.close()
    assert [step["reward"] for step in steps] == [reward for _, reward, *_ in played]
    assert (outcome.status, outcome.terminated) == ("ended", True)
    assert [step["executed"] for step in steps] == [2, 2, 1, 2, 2]
    assert [step["raw"] for step in steps] == ["forward", "forward", "right", "forward", "forward"]
    question = people.asked[0]
    assert question["actions"][2] == {"action": 2, "name": "forward", "keys": ["2", "ArrowUp"]}
    assert question["text"] == "get to the green goal square"
    assert [(step, payload["mode"]) for *_, step, payload in pictures.seen] == [
        (step, "png") for step in range(6)
    ]


def test_what_is_typed_and_refused_is_asked_for_again(tmp_path):
    answers = [[7.0], "left", [0.5], [[1]], [-2.0]]
    people = People(lambda question: answers[len(people.asked) - 1])
    config = OperatorConfig("human", "me", "Pendulum-v1", max_steps=2)
    with people.answering() as choose:
        outcome, steps = played_by(choose, config, tmp_path)
    assert (outcome.status, outcome.episode_length) == ("ended", 2)
    assert [step["executed"] for step in steps] == [[0.5], [-2.0]]
    assert {question["space"] for question in people.asked} == {"Box(-2.0, 2.0, (1,), float32)"}
    messages = [question["message"] for question in people.asked]
    assert messages[0] is messages[3] is None
    assert messages[1] == "step: action: [0]: expected from -2.0 to 2.0, got 7.0"
    assert all(message.startswith("step: action: ") for message in (messages[2], messages[4]))


def test_actions_can_be_given_names(tmp_path):
    people = People(lambda question: question["actions"][2]["action"])
    names = ["left", "down", "right", "up"]
    settings = {"action_names": names}
    config = OperatorConfig("human", "me", "FrozenLake-v1", settings=settings, max_steps=1)
    with people.answering() as choose:
        outcome, steps = played_by(choose, config, tmp_path)
    assert (outcome.status, steps[0]["executed"]) == ("ended", 2)
    (question,) = people.asked
    assert [one["name"] for one in question["actions"]] == names
    assert question["actions"][2]["keys"] == ["2", "ArrowRight"]


def test_a_death_ends_the_wait(tmp_path):
    config = OperatorConfig("human", "me", "FrozenLake-v1", env_kwargs=LAKE)

    def choose(asked, look):
        look()  # it lives
        os.kill(handle.pid, signal.SIGKILL)
        assert handle.wait(LONG_S) is not None
        look()

    episodes = SingleEpisodes(config, start_timeout_s=LONG_S, step_timeout_s=LONG_S, choose=choose)
    with OperatorLauncher(tmp_path, terminal=False) as launcher:
        handle = launcher.launch_operator(config, "run", interactive=True)
        (outcome,) = episodes.play(
            handle, 0, 5, before_step=lambda: None, record_step=lambda record: None
        )
    assert (outcome.status, outcome.lost) == ("failed", True)
    assert "was killed by SIGKILL" in outcome.failure


def test_what_the_question_raises_is_raised(tmp_path):
    class AbandonedError(Exception):
        pass

    def choose(asked, look):
        raise AbandonedError

    config = OperatorConfig("human", "me", "FrozenLake-v1", env_kwargs=LAKE)
    with pytest.raises(AbandonedError):
        played_by(choose, config, tmp_path)


def test_other_kinds_are_not_asked(tmp_path):
    config = OperatorConfig("baseline", "random", "CartPole-v1", policy="random", max_steps=3)
    outcome, _ = played_by(None, config, tmp_path)
    asked, _ = played_by(lambda asked, look: pytest.fail("asked"), config, tmp_path / "again")
    assert (outcome.status, asked) == ("ended", outcome)
