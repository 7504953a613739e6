"""Games on cards, between programs and with people, against loops over PettingZoo itself."""

from __future__ import annotations

import io
import os
import signal

import numpy as np
import pytest
from boards import begin, card_of, settled, until
from left_records import records
from pettingzoo.classic.chess import chess
from pettingzoo.classic.connect_four import connect_four
from PIL import Image
from playing_games import CHESS, FOUR, RPS, config_of, player

from parllel.distributed.operators import Board, OperatorConfig

PERSON = OperatorConfig("human", "person")
LAST = "def act(command):\n    return command['legal_actions'][-1]"
ONE = "def act(command):\n    return 1"


def rows_of(shown):
    (card,) = shown["cards"]
    return {row["player_id"]: row for row in card["players"]}


def asked(board, n=1, after=0):
    """Wait for n questions with numbers above `after`, and return them."""

    def holds(shown):
        (card,) = shown["cards"]
        return sum(one["number"] > after for one in card["questions"]) == n

    (card,) = until(board, holds)["cards"]
    return card["questions"]


def test_programs_play_connect_four_a_step_at_a_time(tmp_path):
    players = {seat: player(tmp_path, f"op-{seat}", LAST) for seat in ("player_0", "player_1")}
    with Board([config_of(FOUR, players)], base=tmp_path) as board:
        (card,) = board.snapshot()["cards"]
        assert (card["kind"], card["operator_type"], card["policy"]) == ("game", None, None)
        assert [(row["player_id"], row["status"]) for row in card["players"]] == [
            ("player_0", "new"),
            ("player_1", "new"),
        ]
        board.look("a page", ["game"])
        (card,) = begin(board, 3)["cards"]
        env = connect_four.env(render_mode="rgb_array")
        env.reset(seed=3)
        for n in range(3):
            until(board, lambda shown, n=n: shown["cards"][0]["step"] == n)
            settled(board, "ready")
            frame = board.frame("game")
            assert frame.step == n
            np.testing.assert_array_equal(
                np.asarray(Image.open(io.BytesIO(frame.png)).convert("RGB")), env.render()
            )
            board.step()
            env.step(6)
        board.play()
        (card,) = settled(board, "ended")["cards"]
        while env.agents:
            mask = env.observe(env.agent_selection)["action_mask"]
            done = env.terminations[env.agent_selection]
            env.step(None if done else int(np.flatnonzero(mask)[-1]))
        assert {row["status"] for row in card["players"]} == {"ended"}
        folder = board.folder
    env.close()
    rewards = [row["total_reward"] for row in card["players"]]
    assert sorted(rewards) == [-1.0, 1.0]
    assert card["episode_reward"] == rewards[0]
    assert card["totals"]["mean_reward"] == rewards[0]
    assert len(records(folder, "board_game", "steps")) == card["step"]


def test_a_game_without_pictures_shows_its_text(tmp_path):
    game = tmp_path / "game.py"
    game.write_text(
        "from pettingzoo.classic.tictactoe import tictactoe\n"
        "class Plain(tictactoe.raw_env):\n"
        "    metadata = {**tictactoe.raw_env.metadata, 'render_modes': ['ansi']}\n"
        "def game(render_mode=None):\n"
        "    env = Plain(render_mode=render_mode)\n"
        "    env.render = lambda: f'{sum(map(bool, env.board.squares))} of 9 squares'\n"
        "    return env\n"
    )
    first = "def act(command):\n    return command['legal_actions'][0]"
    players = {seat: player(tmp_path, f"op-{seat}", first) for seat in ("player_1", "player_2")}
    with Board([config_of(f"{game}:game", players)], base=tmp_path) as board:
        board.look("a page", ["game"])
        board.reset(1)
        until(board, lambda shown: shown["cards"][0]["text"] == "0 of 9 squares")
        settled(board, "ready")
        board.step()
        until(board, lambda shown: shown["cards"][0]["text"] == "1 of 9 squares")
        assert board.frame("game") is None


def test_a_person_plays_chess_against_random_moves(tmp_path):
    random = OperatorConfig("chess", "random", policy="random")
    config = config_of(CHESS, {"player_0": PERSON, "player_1": random}, max_steps=6)
    numbers = [0]
    with Board([config], base=tmp_path) as board:
        begin(board, 5)
        board.play()
        for _ in range(3):
            (question,) = asked(board, after=numbers[-1])
            assert rows_of(board.snapshot())["player_0"]["status"] == "waiting"
            numbers.append(question["number"])
            # The first in the alphabet.
            move = min(question["actions"], key=lambda one: one["name"])
            with pytest.raises(ValueError, match="card 'game': action of player 'player_0': "):
                board.act("game", question["number"], -1)
            board.act("game", question["number"], move["action"])
        (card,) = settled(board, "ended")["cards"]
        assert (card["step"], card["truncated"]) == (6, True)
        folder = board.folder
    env = chess.env()
    env.reset(seed=5)
    steps = records(folder, "board_game", "steps")
    for step in steps:
        assert step["player_id"] == env.agent_selection
        assert env.observe(env.agent_selection)["action_mask"][step["executed"]]
        env.step(step["executed"])
    assert question["text"].split()[-1] == "3"  # the third move of white, in FEN
    env.close()
    assert len(steps) == 6


def test_people_and_a_program_act_at_the_same_time(tmp_path):
    other = OperatorConfig("human", "other")
    game = tmp_path / "game.py"
    game.write_text(
        "from parllel.testing.dummy_parallel_env import CountingParallelEnv\n"
        "def game():\n    return CountingParallelEnv({'a': 2, 'b': 2, 'c': 2})\n"
    )
    players = {"a": PERSON, "b": other, "c": player(tmp_path, "program", ONE)}
    with Board([config_of(f"{game}:game", players)], base=tmp_path) as board:
        begin(board, 1)
        board.step(["game"])
        first, second = asked(board, 2)
        assert [first["player_id"], second["player_id"]] == ["a", "b"]
        rows = rows_of(board.snapshot())
        assert [rows[name]["status"] for name in "abc"] == ["waiting", "waiting", "ready"]
        with pytest.raises(ValueError, match=r"action of player 'b': .*expected from"):
            board.act("game", second["number"], [7.0, 0.0])
        board.act("game", second["number"], [0.5, 0.25])
        (first,) = board.snapshot()["cards"][0]["questions"]
        assert board.snapshot()["cards"][0]["step"] == 0
        board.act("game", first["number"], 1)
        until(board, lambda shown: shown["cards"][0]["step"] == 1)
        shown = settled(board, "ready")
        folder = board.folder
    assert [rows_of(shown)[name]["last"]["executed"] for name in "abc"] == [1, [0.5, 0.25], 1]
    assert [step["executed"] for step in records(folder, "board_game", "steps")] == [
        1,
        [0.5, 0.25],
        1,
    ]


@pytest.mark.parametrize("when", ["between steps", "while a person thinks", "after the episode"])
@pytest.mark.few(1)
def test_the_death_of_a_player_is_shown_on_its_card_alone(when, tmp_path, quick_people):
    pid = tmp_path / "pid"
    said = f"import os\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\n"
    program = player(tmp_path, "program", said + ONE)
    random = OperatorConfig("baseline", "random", "CartPole-v1", policy="random")
    steps = 2 if when == "after the episode" else None
    config = config_of(RPS, {"player_0": PERSON, "player_1": program}, max_steps=steps)
    with Board([config, random], base=tmp_path) as board:
        begin(board, 1)
        if when == "after the episode":
            board.play(["game"])
            number = 0
            for _ in range(2):
                (question,) = asked_on(board, number)
                number = question["number"]
                board.act("game", number, 0)
            settled(board, "ended", cards=["game"])
        elif when == "while a person thinks":
            board.step(["game"])
            asked_on(board, 0)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        shown = settled(board, "died", cards=["game"])
        card = card_of(shown, "game")
        assert card["message"].startswith("player 'player_1' (program): ")
        assert [row["status"] for row in card["players"]] == ["new", "died"]
        assert card["questions"] == []
        board.play(["random"])
        settled(board, "ended", cards=["random"])
        board.restart("game")
        shown = settled(board, "ready", cards=["game"])
        assert {row["status"] for row in card_of(shown, "game")["players"]} == {"ready"}
        board.step(["game"])
        (question,) = asked_on(board, 0)
        board.act("game", question["number"], 2)
        shown = until(board, lambda shown: card_of(shown, "game")["step"] == 1)
        assert card_of(shown, "game")["players"][0]["last"]["executed"] == 2


def asked_on(board, after):
    shown = until(
        board,
        lambda shown: any(one["number"] > after for one in card_of(shown, "game")["questions"]),
    )
    return card_of(shown, "game")["questions"]


def test_a_reset_gives_up_a_game_and_begins_another(tmp_path, quick_people):
    program = player(tmp_path, "program", ONE)
    config = config_of(RPS, {"player_0": PERSON, "player_1": program})
    with Board([config], base=tmp_path) as board:
        begin(board, 1)
        board.play()
        (question,) = asked(board)
        board.act("game", question["number"], 2)
        (question,) = asked(board, after=question["number"])
        board.reset(9)
        (question,) = asked(board, after=question["number"])
        (card,) = board.snapshot()["cards"]
        assert (card["step"], card["seed"], card["episode"]) == (0, 9, 1)
        assert [row["total_reward"] for row in card["players"]] == [0.0, 0.0]
        folder = board.folder
    assert [step["episode"] for step in records(folder, "board_game", "steps")] == [0, 0]
    assert not records(folder, "board_game", "episodes")
