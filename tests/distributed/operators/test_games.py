"""Games of both kinds, against loops that are written out as PettingZoo's documentation has them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from mpe2 import simple_spread_v3
from pettingzoo.classic.chess import chess
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.rps import rps
from pettingzoo.classic.tictactoe import tictactoe

from parllel.distributed.operators.games.game_questions import GameQuestions
from parllel.distributed.operators.games.player_spaces import make_game_env, player_spaces
from parllel.distributed.wire import from_json
from parllel.envs.multi_agent_game import AecGame, ParallelGame, game_of
from parllel.testing.dummy_parallel_env import CountingParallelEnv


def sequential(env, actions, seed):
    """Return the return of each player, and what those who acted saw; actions: a generator's."""
    env.reset(seed=seed)
    returns = dict.fromkeys(env.possible_agents, 0.0)
    seen = []
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        returns[agent] += reward
        if terminated or truncated:
            env.step(None)
            continue
        seen.append((agent, observation))
        env.step(choose(env.action_space(agent), observation, actions))
    return returns, seen


def choose(space, observation, generator):
    mask = observation["action_mask"] if isinstance(observation, dict) else np.ones(space.n)
    return int(generator.choice(np.flatnonzero(mask)))


def played(game, actions, seed):
    """Return the same of a game; and what it says of legal actions."""
    game.reset(seed)
    questions = GameQuestions(game)
    returns = dict.fromkeys(game.players, 0.0)
    seen = []
    while game.turn():
        (player,) = game.turn()
        one = questions.seen(player)
        observation = from_json(game.env.observation_space(player), one.observation)
        seen.append((player, observation))
        action = choose(game.env.action_space(player), observation, actions)
        assert one.legal is None or action in one.legal
        for name, reward in game.step({player: questions.action_of(player, action)}).items():
            returns[name] += reward
    return returns, seen


@pytest.mark.parametrize(
    ("make", "n_episodes"),
    [
        (connect_four.env, 8),
        (tictactoe.env, 8),
        (rps.env, 2),
        (simple_spread_v3.env, 2),
        (chess.env, 1),
    ],
)
def test_an_aec_game_is_that_of_a_plain_loop(make, n_episodes):
    env = make()
    game = game_of(make())
    assert isinstance(game, AecGame)
    with game:
        for seed in range(n_episodes):
            expected, expected_seen = sequential(env, np.random.default_rng(seed), seed)
            returns, seen = played(game, np.random.default_rng(seed), seed)
            assert returns == pytest.approx(expected)
            assert len(seen) == len(expected_seen)
            for (player, one), (agent, other) in zip(seen, expected_seen, strict=True):
                assert player == agent
                np.testing.assert_equal(one, other)
            assert all(flags[0] or flags[1] for flags in game.flags.values())
    env.close()


def test_players_leave_a_parallel_game_when_their_part_is_over():
    with game_of(CountingParallelEnv({"a": 2, "b": 3}, {"b": "truncated"})) as game:
        assert isinstance(game, ParallelGame)
        questions = GameQuestions(game)
        game.reset(4)
        assert game.env.seeds == [4]
        assert game.turn() == ["a", "b"]
        assert questions.seen("a").observation == [0.0, 0.0]
        assert questions.seen("b").observation == [100.0, 0.0, 0.0]
        actions = {"a": questions.action_of("a", 2), "b": questions.action_of("b", [3.0, -0.5])}
        np.testing.assert_array_equal(actions["b"], np.array([1.0, -0.5], np.float32))
        assert set(game.step(actions)) == {"a", "b"}
        game.step(actions)
        assert (game.turn(), game.flags["a"]) == (["b"], (True, False))
        questions.seen("b")
        game.step({"b": actions["b"]})
        assert (game.turn(), game.flags["b"]) == ([], (False, True))


def test_actions_that_are_none_and_those_that_the_mask_forbids_are_refused():
    with game_of(connect_four.env()) as game:
        questions = GameQuestions(game)
        game.reset(0)
        for _ in range(6):
            (player,) = game.turn()
            questions.seen(player)
            game.step({player: 3})
        (player,) = game.turn()
        assert questions.seen(player).legal == [0, 1, 2, 4, 5, 6]
        assert questions.first_action(player) == 0
        drawn = {questions.draw_action(player, np.random.default_rng(seed)) for seed in range(60)}
        assert drawn == {0, 1, 2, 4, 5, 6}
        with pytest.raises(ValueError, match="expected a legal action, got 3"):
            questions.action_of(player, 3)
        for wrong in (7, -1, "3", None, [3], 3.5):
            with pytest.raises(ValueError, match="expected "):
                questions.action_of(player, wrong)


def test_chess_comes_with_its_position_in_the_words_of_chess_players():
    with game_of(make_game_env("pettingzoo/classic/chess_v6")) as game:
        questions = GameQuestions(game)
        game.reset(0)
        white = questions.seen("player_0")
        assert white.text == "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
        assert len(white.legal) == len(white.info["legal_moves"]) == 20
        game.step({"player_0": white.legal[white.info["legal_moves"].index("e2e4")]})
        black = questions.seen("player_1")
        # En passant is said only where it can be.
        assert black.text == "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
        game.step({"player_1": black.legal[black.info["legal_moves"].index("g8f6")]})
        assert "5n2" in questions.seen("player_0").text


def test_the_spaces_of_a_player_are_those_of_its_game():
    observation, action = player_spaces("pettingzoo/classic/connect_four_v3", {}, "player_1")
    assert action == spaces.Discrete(7)
    assert set(observation) == {"observation", "action_mask"}
    _, action = player_spaces("mpe2/simple_spread_v3", {"continuous_actions": True}, "agent_2")
    assert isinstance(action, spaces.Box)


@pytest.mark.parametrize(
    ("env_id", "error", "message"),
    [
        ("pettingzoo/chess_v6", ValueError, "did you mean pettingzoo/classic/chess_v6?"),
        ("CartPole-v1", ValueError, "game 'CartPole-v1': expected a module such as"),
        ("nothing.py:make", FileNotFoundError, "nothing.py.*no such file"),
        ("nolibrary/some_v0", ValueError, "expected pettingzoo or mpe2 before the first slash"),
    ],
)
def test_games_that_are_none_are_named(env_id, error, message):
    with pytest.raises(error, match=message):
        make_game_env(env_id)


def test_games_that_cannot_be_made_say_why(tmp_path):
    with pytest.raises(ValueError, match=r"could not be made: TypeError: .*'wrong'"):
        make_game_env("mpe2/simple_spread_v3", {"wrong": 1})
    with pytest.raises(ValueError, match=r"expected one of the players .*'agent_0'.*got 'nobody'"):
        player_spaces("mpe2/simple_spread_v3", {}, "nobody")
    file = tmp_path / "mine.py"
    file.write_text("def make():\n    return 3\n")
    with pytest.raises(ValueError, match=r"expected an AEC or a parallel environment.*got int"):
        make_game_env(f"{file}:make")
    with pytest.raises(ValueError, match="defines no function 'other'"):
        make_game_env(f"{file}:other")
