"""Games of one process that draw with pygame, which all of them share."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from playing_games import FOUR, RPS

from parllel.distributed.operators.games.player_spaces import make_game_env
from parllel.envs.multi_agent_game import game_of

DRAWS = {"render_mode": "rgb_array"}


def test_the_end_of_one_game_leaves_others_their_fonts():
    one, other = (game_of(make_game_env(RPS, DRAWS)) for _ in range(2))
    for game in (one, other):
        game.reset(1)
    before = other.env.render()
    one.env.render()
    one.close()
    np.testing.assert_array_equal(other.env.render(), before)
    other.close()
    # The last has taken pygame with it: what comes later begins it anew.
    with game_of(make_game_env(RPS, DRAWS)) as last:
        last.reset(1)
        np.testing.assert_array_equal(last.env.render(), before)


def test_games_draw_and_end_in_threads_of_their_own():
    errors = []

    def play(env_id):
        try:
            for seed in range(3):
                with game_of(make_game_env(env_id, DRAWS)) as game:
                    game.reset(seed)
                    for _ in range(3):
                        movers = game.turn()
                        for player in movers:
                            game.observe(player)
                        game.step({player: game.first_action(player) for player in movers})
                        assert game.env.render().dtype == np.uint8
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=play, args=(env_id,)) for env_id in (RPS, FOUR, RPS, RPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert errors == []


def test_a_game_that_draws_nothing_is_closed_at_once():
    def close():
        raise OSError("closed")

    drawing = game_of(make_game_env(RPS, DRAWS))
    plain = game_of(make_game_env(FOUR))
    plain.env.close = close
    with pytest.raises(OSError, match="closed"):
        plain.close()
    plain.close()  # twice
    drawing.close()
