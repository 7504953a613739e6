"""What becomes of illegal actions, of players that fail, and of games that do."""

from __future__ import annotations

import os
import signal

import pytest
from playing_games import CHESS, FOUR, RPS, ZERO, config_of, played, player, script, started

from parllel.distributed.operators import OperatorConfig
from parllel.distributed.operators.games.game_episodes import GameEpisodes
from parllel.seeding import Seeds


@pytest.mark.parametrize("rule", ["random", "first", "forfeit", "error"])
def test_what_an_illegal_action_leads_to_is_declared(rule, tmp_path):
    players = {seat: player(tmp_path, f"op-{seat}", ZERO) for seat in ("player_0", "player_1")}
    config = config_of(FOUR, players, illegal=rule, max_steps=9)
    (both,), (steps,) = played(config, tmp_path)
    assert [step["executed"] for step in steps[:6]] == [0] * 6
    assert [step["illegal"] for step in steps[:7]] == [False] * 6 + [True]
    sixth = steps[6]
    assert (sixth["player_id"], sixth["action"]) == ("player_0", 0)
    if rule in ("random", "first"):
        assert [one.status for one in both] == ["ended"] * 2
        assert len(steps) == 9
        # Of the seed of the episode.
        drawn = Seeds(3).generator("illegal actions").integers(6, size=3) + 1
        expected = drawn.tolist() if rule == "random" else [1, 1, 1]
        assert [step["executed"] for step in steps[6:]] == expected
        assert all(one.truncated and not one.terminated for one in both)
        return
    assert len(steps) == 7
    assert sixth["executed"] is None
    if rule == "forfeit":
        assert [one.total_reward for one in both] == [-1.0, 0.0]
        assert all(one.terminated and one.status == "ended" for one in both)
        assert (sixth["reward"], sixth["terminated"]) == (-1.0, True)
    else:
        assert [one.status for one in both] == ["failed"] * 2
        message = (
            "player 'player_0' (op-player_0): illegal action 0: expected a legal action, got 0"
        )
        assert [one.failure for one in both] == [message] * 2
        assert not any(one.lost for one in both)


def test_a_move_that_is_none_is_illegal_and_shown_as_it_was_said(tmp_path):
    file = script(tmp_path, "bold.py", "def move(fen, moves):\n    return 'e2e5'\n")
    players = {
        "player_0": OperatorConfig("chess", "bold", policy=file),
        "player_1": OperatorConfig("chess", "calm", policy="random"),
    }
    config = config_of(CHESS, players, illegal="first", max_steps=1)
    (both,), (steps,) = played(config, tmp_path)
    assert [one.status for one in both] == ["ended"] * 2
    assert (steps[0]["action"], steps[0]["raw"], steps[0]["illegal"]) == ("e2e5", "e2e5", True)
    assert isinstance(steps[0]["executed"], int)


def test_the_death_of_a_player_is_its_failure_and_ends_the_game(tmp_path):
    first = "def act(command):\n    return command['legal_actions'][0]"
    players = {seat: player(tmp_path, f"op-{seat}", first) for seat in ("player_0", "player_1")}
    config = config_of(FOUR, players)
    with started(config, tmp_path) as (game, handle):

        def kill(record):
            if record["step"] == 3:
                os.kill(handle.player_handles["player_1"].pid, signal.SIGKILL)

        white, black = game.play(handle, 0, 3, record_step=kill)
        assert (white.status, black.status) == ("failed", "failed")
        assert (white.lost, black.lost) == (False, True)
        assert black.failure.startswith("player 'player_1' (op-player_1): operator 'op-player_1'")
        assert "signal" in black.failure or "SIGKILL" in black.failure or "-9" in black.failure
        assert white.episode_length == 3


def test_a_player_that_hangs_is_given_up_after_its_time(tmp_path):
    slow = player(tmp_path, "slow", "def act(command):\n    time.sleep(60)")
    fast = player(tmp_path, "fast", ZERO)
    config = config_of(RPS, {"player_0": fast, "player_1": slow})
    (both,), (steps,) = played(config, tmp_path, step_timeout_s=5.0)
    assert [one.lost for one in both] == [False, True]
    assert "player 'player_1'" in both[0].failure
    assert "did not answer within 5 s" in both[0].failure
    assert steps == []


def test_a_player_that_raises_fails_its_episode_and_plays_the_next(tmp_path):
    file = script(
        tmp_path,
        "moody.py",
        """
        made = []
        def moody(observation):
            made.append(1)
            if len(made) == 3:
                raise KeyError("the third")
            return 1
        """,
    )
    config = config_of(RPS, {"player_0": "noop", "player_1": file})
    outcomes, _ = played(config, tmp_path, seeds=[1, 2])
    first, second = outcomes
    assert [one.status for one in first] == ["failed"] * 2
    assert "KeyError" in first[0].failure
    assert not any(one.lost for one in first)
    # Paper beats rock, always.
    assert [one.total_reward for one in second] == [-15.0, 15.0]


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("float('nan')", "ValueError: expected finite rewards, got nan for 'a'"),
        ("1 // 0", "ZeroDivisionError: "),
    ],
)
def test_a_game_that_goes_wrong_fails_the_episode_and_is_begun_anew(reward, message, tmp_path):
    file = script(
        tmp_path,
        "game.py",
        f"""
        from parllel.testing.dummy_parallel_env import CountingParallelEnv

        class Game(CountingParallelEnv):
            def step(self, actions):
                observations, rewards, *rest = super().step(actions)
                if len(self.actions) == 2:
                    rewards["a"] = {reward}
                return observations, rewards, *rest

        def game():
            return Game({{"a": 3, "b": 3}})
        """,
    )
    act = "def act(command):\n    return [0.5, 0.5] if command['player_id'] == 'b' else 1"
    players = {name: player(tmp_path, f"op-{name}", act) for name in "ab"}
    outcomes, _ = played(config_of(f"{file}:game", players), tmp_path, seeds=[1, 2])
    first, second = outcomes
    assert {one.failure.partition("game.py:game': ")[2] for one in first} <= {
        f"step: {message}",
        f"step: {message}integer division or modulo by zero",
    }
    assert [one.episode_length for one in first] == [1, 1]
    assert not any(one.lost for one in first)
    assert [(one.status, one.episode_length) for one in second] == [("ended", 3)] * 2


def test_players_have_to_be_those_of_the_game():
    config = config_of(FOUR, {"white": "random", "player_1": "random"})
    with pytest.raises(ValueError, match=r"expects operators for .*'player_0'.*got .*'white'"):
        GameEpisodes(config)


def test_what_is_raised_before_a_step_ends_the_episode_and_passes(tmp_path):
    players = {seat: player(tmp_path, f"op-{seat}", ZERO) for seat in ("player_0", "player_1")}
    config = config_of(RPS, players)

    def interrupt():
        raise KeyboardInterrupt

    with started(config, tmp_path) as (game, handle):
        with pytest.raises(KeyboardInterrupt):
            game.play(handle, 0, 1, before_step=interrupt)
        assert [one.status for one in game.play(handle, 0, 1)] == ["ended"] * 2
