"""The squares of a board that an action is about are those that it changes in the picture."""

from __future__ import annotations

import numpy as np
import pytest
from playing_games import CHESS, FOUR, RPS

from parllel.distributed.operators.games.game_questions import GameQuestions
from parllel.distributed.operators.games.player_spaces import make_game_env
from parllel.envs.multi_agent_game import game_of

TTT = "pettingzoo/classic/tictactoe_v3"


def asked_in(game):
    """Return what the player who acts now is asked."""
    (player,) = game.turn()
    questions = GameQuestions(game)
    return player, questions.asked(player, questions.seen(player), {})


def changed(before, after, board):
    """Return the squares of a picture that changed, by the size of the change, largest first."""
    difference = np.abs(after.astype(int) - before).sum(axis=2)
    height, width = difference.shape
    left = board["left"] * width
    across, down = (width - 2 * left) / board["columns"], height / board["rows"]
    sums = {}
    for square in range(board["rows"] * board["columns"]):
        row, column = divmod(square, board["columns"])
        x, y = int(left + column * across), int(row * down)
        sums[square] = difference[y : y + int(down), x : x + int(across)].sum()
    return sorted((one for one in sums if sums[one]), key=lambda one: -sums[one])


@pytest.mark.parametrize(("env_id", "n_squares"), [(CHESS, 2), (FOUR, 1), (TTT, 1)])
@pytest.mark.few(1)
def test_an_action_changes_the_squares_that_it_is_about(env_id, n_squares):
    generator = np.random.default_rng(0)
    with game_of(make_game_env(env_id, {"render_mode": "rgb_array"})) as game:
        game.reset(1)
        for _ in range(6):
            player, asked = asked_in(game)
            board = asked.board
            assert len(board["squares"]) == len(asked.actions)
            i = int(generator.integers(len(asked.actions)))
            before = game.env.render()
            game.step({player: asked.actions[i].action})
            found = changed(before, game.env.render(), board)
            assert sorted(found[:n_squares]) == sorted(board["squares"][i])


def test_other_games_and_games_without_pictures_have_no_squares():
    with game_of(make_game_env(CHESS, {})) as game:
        game.reset(1)
        assert asked_in(game)[1].board is None
    with game_of(make_game_env(RPS, {"render_mode": "rgb_array"})) as game:
        game.reset(1)
        for player in game.turn():
            questions = GameQuestions(game)
            assert questions.asked(player, questions.seen(player), {}).board is None
