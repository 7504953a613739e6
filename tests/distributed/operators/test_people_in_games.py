"""People who play games away from a terminal, against loops over PettingZoo itself."""

from __future__ import annotations

import os
import signal

import pytest
from answering_people import LONG_S, People
from pettingzoo.classic.chess import chess
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.rps import rps
from playing_games import CHESS, FOUR, RPS, config_of, player, script

from parllel.distributed.operators import OperatorConfig, OperatorLauncher
from parllel.distributed.operators.board.players import Players
from parllel.distributed.operators.games.game_episodes import GameEpisodes

PERSON = OperatorConfig("human", "person")
LAST = "def act(command):\n    return command['legal_actions'][-1]"


def played_with(people, config, folder, seed=3, **options):
    """Return the outcomes of an episode, the records of its steps, and its players at the end."""
    players, steps = Players(config), []

    def record_step(record):
        steps.append(record)
        players.record(record)

    with (
        people.answering() as choose,
        GameEpisodes(config, choose=choose, notice=players.notice, **options) as game,
        OperatorLauncher(folder, terminal=False) as launcher,
    ):
        handle = launcher.launch_multiagent_operator(config)
        outcomes = game.play(handle, 0, seed, record_step=record_step)
    assert people.error is None
    return outcomes, steps, players.as_json()


def returns_of(env, actions, seed=3):
    """Return what each gets for these actions in a loop of PettingZoo's own, and all that were legal."""
    env.reset(seed=seed)
    returns, legal = dict.fromkeys(env.possible_agents, 0.0), []
    left = list(actions)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        returns[agent] += reward
        if terminated or truncated or not left:
            if not (terminated or truncated):
                break
            env.step(None)
            continue
        mask = observation["action_mask"]
        legal.append([action for action in range(len(mask)) if mask[action]])
        env.step(left.pop(0))
    assert not left
    return returns, legal


def test_a_person_plays_chess_by_its_moves_against_a_program(tmp_path):
    """The fool's mate, as black."""
    moves = ["e7e5", "d8h4"]

    def choose(question):
        assert question["text"].split()[1] == "b"  # the position in FEN
        wanted = moves.pop(0)
        (found,) = [one["action"] for one in question["actions"] if one["name"] == wanted]
        return found

    file = script(
        tmp_path,
        "fool.py",
        'def white(fen, moves):\n    return {"1": "f2f3", "2": "g2g4"}[fen.split()[-1]]\n',
    )
    white = OperatorConfig("chess", "fool", policy=f"{file}:white")
    config = config_of(CHESS, {"player_0": white, "player_1": PERSON})
    people = People(choose)
    outcomes, steps, players = played_with(people, config, tmp_path)
    assert [one.total_reward for one in outcomes] == [-1.0, 1.0]
    env = chess.env()
    returns, legal = returns_of(env, [step["executed"] for step in steps])
    env.close()
    assert {one.player_id: one.total_reward for one in outcomes} == returns
    asked = [[one["action"] for one in question["actions"]] for question in people.asked]
    assert asked == legal[1::2]
    assert [step["illegal"] for step in steps] == [False] * 4
    assert [step["raw"] for step in steps] == ["f2f3", "e7e5", "g2g4", "d8h4"]
    assert [(row["status"], row["total_reward"]) for row in players] == [
        ("ended", -1.0),
        ("ended", 1.0),
    ]
    assert players[1]["last"]["executed"] == steps[-1]["executed"]


def test_two_people_play_connect_four(tmp_path):
    columns = [3, 2, 3, 2, 3, 2, 3]

    def choose(question):
        return columns[len(people.asked) - 1]

    people = People(choose)
    other = OperatorConfig("human", "other", settings={"keys": {"a": 0, "left": 1}})
    config = config_of(FOUR, {"player_0": PERSON, "player_1": other})
    outcomes, steps, _ = played_with(people, config, tmp_path)
    assert [step["executed"] for step in steps] == columns
    env = connect_four.env()
    assert {one.player_id: one.total_reward for one in outcomes} == returns_of(env, columns)[0]
    env.close()
    first, second = people.asked[:2]
    assert (first["player_id"], second["player_id"]) == ("player_0", "player_1")
    assert first["actions"][3] == {"action": 3, "name": "3", "keys": ["3"]}
    assert [one["keys"] for one in second["actions"][:3]] == [["a"], ["ArrowLeft"], []]


def test_a_person_and_a_program_act_at_the_same_time(tmp_path):
    paper = player(tmp_path, "paper", "def act(command):\n    return 1")
    names = ["rock", "paper", "scissors"]
    person = OperatorConfig("human", "person", settings={"action_names": names})
    config = config_of(RPS, {"player_0": person, "player_1": paper}, max_steps=3)
    chosen = [2, 0, 1]
    people = People(lambda question: chosen[len(people.asked) - 1])
    outcomes, steps, players = played_with(people, config, tmp_path)
    env = rps.parallel_env()
    env.reset(seed=3)
    expected = [env.step({"player_0": one, "player_1": 1})[1] for one in chosen]
    env.close()
    assert [step["reward"] for step in steps] == [
        reward for both in expected for reward in both.values()
    ]
    assert [step["executed"] for step in steps] == [2, 1, 0, 1, 1, 1]
    assert [one.total_reward for one in outcomes] == [row["total_reward"] for row in players]
    assert [one["name"] for one in people.asked[0]["actions"]] == names
    # Nothing is drawn here: people see what a program sees, which is the other's last move.
    assert [question["text"] for question in people.asked] == ["3", "1", "1"]


THREE = """
    from parllel.testing.dummy_parallel_env import CountingParallelEnv

    def game():
        return CountingParallelEnv({"a": 2, "b": 2, "c": 2})
    """


def test_people_who_act_at_the_same_time_are_asked_at_the_same_time(tmp_path):
    game = script(tmp_path, "game.py", THREE)
    program = player(tmp_path, "program", "def act(command):\n    return 1")
    other = OperatorConfig("human", "other")
    config = config_of(f"{game}:game", {"a": PERSON, "b": other, "c": program})

    def choose(question):
        # Both are there, whoever answers first.
        numbers.add(tuple(one["player_id"] for one in people.questions.as_json()))
        if question["player_id"] == "b":
            # Nothing is clipped that a person typed.
            with pytest.raises(ValueError, match=r"player 'b': \[0\]: expected from"):
                people.questions.answer(question["number"], [7.0, 0.0])
            return [0.5, 0.25]
        return 1

    numbers = set()
    people = People(choose)
    outcomes, steps, _ = played_with(people, config, tmp_path)
    assert [one.status for one in outcomes] == ["ended"] * 3
    assert ("a", "b") in numbers
    assert [(step["player_id"], step["executed"]) for step in steps] == [
        ("a", 1),
        ("b", [0.5, 0.25]),
        ("c", 1),
    ] * 2
    questions = {question["player_id"]: question for question in people.asked}
    assert questions["b"]["actions"] is None
    assert questions["b"]["space"].startswith("Box(")


@pytest.mark.parametrize("whose", ["player_0", "player_1"])
def test_a_death_ends_the_wait_for_a_person(whose, tmp_path):
    last = player(tmp_path, "last", LAST)
    config = config_of(FOUR, {"player_0": PERSON, "player_1": last})
    players = Players(config)

    def choose(asked, look):
        look()  # all live
        process = handle.player_handles[whose]
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(LONG_S) is not None
        look()

    with (
        GameEpisodes(config, choose=choose, notice=players.notice) as game,
        OperatorLauncher(tmp_path, terminal=False) as launcher,
    ):
        handle = launcher.launch_multiagent_operator(config)
        outcomes = game.play(handle, 0, 1)
    name = "person" if whose == "player_0" else "last"
    assert [one.status for one in outcomes] == ["failed"] * 2
    assert outcomes[0].failure.startswith(f"player {whose!r} ({name}): ")
    assert "was killed by SIGKILL" in outcomes[0].failure
    assert [one.player_id for one in outcomes if one.lost] == [whose]
    assert [row["player_id"] for row in players.as_json() if row["status"] == "died"] == [whose]


def test_a_question_that_is_withdrawn_ends_the_episode_by_what_it_was_given(tmp_path):
    class AbandonedError(Exception):
        pass

    asked = []

    def choose(question):
        asked.append(question)
        if len(asked) == 1:
            raise AbandonedError
        return question["actions"][0]["action"]

    people = People(choose)
    last = player(tmp_path, "last", LAST)
    config = config_of(FOUR, {"player_0": PERSON, "player_1": last})
    steps = []
    with (
        people.answering() as ask,
        GameEpisodes(config, choose=ask) as game,
        OperatorLauncher(tmp_path, terminal=False) as launcher,
    ):
        handle = launcher.launch_multiagent_operator(config)
        with pytest.raises(AbandonedError):
            game.play(handle, 0, 1, record_step=steps.append)
        # The players live, and begin another.
        people.questions.admit()
        outcomes = game.play(handle, 1, 2, record_step=steps.append)
    assert [one.status for one in outcomes] == ["ended"] * 2
    assert steps[0]["step"] == 1
