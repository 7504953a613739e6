"""Games of PettingZoo's two interfaces; test_games.py plays them against plain loops."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.classic.tictactoe import tictactoe

from parllel.envs.multi_agent_game import AecGame, ParallelGame, game_of, with_render_mode
from parllel.testing.dummy_parallel_env import CountingParallelEnv


def test_what_players_saw_last_is_there_until_the_next_turn_is_asked_for():
    with game_of(tictactoe.env()) as game:
        assert isinstance(game, AecGame)
        game.reset(1)
        # 0, 1 and 2 are the first column.
        for action in (0, 3, 1, 4, 2):
            (player,) = game.turn()
            rewards = game.step({player: action})
        assert rewards == {"player_1": 1.0, "player_2": -1.0}
        assert game.env.agents == ["player_1", "player_2"]
        assert game.flags == {"player_1": (True, False), "player_2": (True, False)}
        assert game.turn() == []
        assert game.env.agents == []


def test_a_mask_of_zeros_forbids_nothing():
    env = CountingParallelEnv({"a": 2}, {})
    env.action_space = lambda agent: spaces.Discrete(3, start=4)
    shown = {"action_mask": None}
    env.reset = lambda seed: ({"a": shown}, {})
    with game_of(env) as game:
        assert isinstance(game, ParallelGame)
        for mask, legal in (([0, 0, 0], None), ([0, 1, 1], [5, 6])):
            shown["action_mask"] = np.array(mask, np.int8)
            game.reset(0)
            assert game.observe("a") == (shown, mask)
            assert game.legal_actions("a") == legal
        assert game.first_action("a") == 5
        drawn = {game.draw_action("a", np.random.default_rng(seed)) for seed in range(20)}
        assert drawn == {5, 6}


def test_only_an_environment_that_can_draw_and_does_not_is_made_anew():
    closed = []

    def make(render_mode=None, modes=("ansi", "rgb_array")):
        return SimpleNamespace(
            metadata={"render_modes": modes},
            render_mode=render_mode,
            close=lambda: closed.append(render_mode),
        )

    assert with_render_mode(make(), make, ("rgb_array", "ansi")).render_mode == "rgb_array"
    assert closed == [None]
    for env in (make("human"), make(modes=()), make(modes=("human",))):
        assert with_render_mode(env, make, ("rgb_array", "ansi")) is env
    assert closed == [None]


@pytest.mark.parametrize("name", [None, "counting"])
def test_a_wrong_reward_is_named(name):
    env = CountingParallelEnv({"a": 2}, {})
    with game_of(env, name) as game:
        game.reset(0)
        answer = ({"a": None}, {"a": "much"}, {"a": False}, {"a": False}, {})
        env.step = lambda actions: answer
        of = "a" if name is None else "counting: a"
        with pytest.raises(TypeError, match=f"^{of}: reward: expected a number, got "):
            game.step({"a": 0})
