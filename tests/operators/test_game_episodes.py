"""Episodes of games between operators in processes of their own, against loops over PettingZoo itself."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from contextlib import contextmanager

import numpy as np
import pytest
from mpe2 import simple_spread_v3
from pettingzoo.classic.chess import chess
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.rps import rps

from parllel.operators import GameEpisodes, MultiAgentConfig, OperatorConfig, OperatorLauncher
from parllel.seeding import Seeds

CHESS = "pettingzoo/classic/chess_v6"
FOUR = "pettingzoo/classic/connect_four_v3"
SPREAD = "mpe2/simple_spread_v3"
RPS = "pettingzoo/classic/rps_v2"


def script(folder, name, text):
    """Write a file of policies and return its path."""
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return str(file)


PLAYER = """
import json, sys, time

{act}

for line in sys.stdin:
    command = json.loads(line)
    answer = {{"type": "stopped"}}
    if command["cmd"] == "init_agent":
        answer = {{"type": "agent_initialized", "player_id": command["player_id"]}}
    elif command["cmd"] == "select_action":
        answer = {{"type": "action_selected", "action": act(command)}}
    print(json.dumps(answer), flush=True)
"""


def player(folder, name, act):
    """Return an operator that starts fast, as it needs neither parllel nor the game; it answers without ids.

    act: the source of a function of the command.
    """
    file = script(folder, f"{name}.py", PLAYER.format(act=textwrap.dedent(act)))
    return OperatorConfig("program", name, worker=[sys.executable, "-S", file])


def config_of(env_id, players, **options):
    """Return the config of a game; players: the policy, or the operator, of each."""
    operators = {
        player: OperatorConfig("baseline", f"op-{player}", policy=one)
        if isinstance(one, str)
        else one
        for player, one in players.items()
    }
    return MultiAgentConfig("game", env_id, operators, **options)


@contextmanager
def started(config, folder, step_timeout_s=30.0):
    """Yield the game and its players, which run."""
    with (
        GameEpisodes(config, step_timeout_s=step_timeout_s) as game,
        OperatorLauncher(folder) as launcher,
    ):
        yield game, launcher.launch_multiagent_operator(config)


def played(config, folder, seeds=(3,), **options):
    """Return the outcomes of each episode, and the records of all steps in each."""
    outcomes, records = [], []
    with started(config, folder, **options) as (game, handle):
        for episode, seed in enumerate(seeds):
            steps = []
            outcomes.append(game.play(handle, episode, seed, record_step=steps.append))
            records.append(steps)
    return outcomes, records


def generators(players, seed):
    """Return what the random player of each seat draws from."""
    return {
        player: Seeds(Seeds(Seeds(seed).integer(f"player {player}")).integer("policy")).generator(
            "actions"
        )
        for player in players
    }


def random_game(env, seed):
    """Return the return of each player and all actions, in a loop of PettingZoo's own."""
    draw = generators(env.possible_agents, seed)
    env.reset(seed=seed)
    returns, actions = dict.fromkeys(env.possible_agents, 0.0), []
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        returns[agent] += reward
        if terminated or truncated:
            env.step(None)
            continue
        legal = np.flatnonzero(observation["action_mask"]).tolist()
        actions.append(legal[int(draw[agent].integers(len(legal)))])
        env.step(actions[-1])
    return returns, actions


@pytest.mark.parametrize(
    ("env_id", "make", "kind", "seeds"),
    [(CHESS, chess.env, "chess", [5]), (FOUR, connect_four.env, "baseline", [0, 1, 2])],
)
def test_random_players_play_the_games_of_a_plain_loop(env_id, make, kind, seeds, tmp_path):
    players = ("player_0", "player_1")
    operators = {p: OperatorConfig(kind, f"op-{p}", policy="random") for p in players}
    outcomes, records = played(config_of(env_id, operators), tmp_path, seeds)
    env = make()
    for seed, both, steps in zip(seeds, outcomes, records, strict=True):
        returns, actions = random_game(env, seed)
        assert [one.failure for one in both] == [None, None]
        assert {one.player_id: one.total_reward for one in both} == returns
        assert [step["executed"] for step in steps] == actions
        assert [step["action"] for step in steps] == actions
        assert [step["step"] for step in steps] == list(range(1, len(actions) + 1))
        assert not any(step["illegal"] for step in steps)
        assert {(one.status, one.terminated, one.episode_length) for one in both} == {
            ("ended", True, len(actions))
        }
        # The loser is paid by the winner's move.
        sums = {p: sum(step["rewards"].get(p, 0.0) for step in steps) for p in players}
        assert sums == returns
    env.close()


def test_chess_between_functions_that_know_positions_and_moves(tmp_path):
    file = script(
        tmp_path,
        "fools_mate.py",
        """
        def white(fen, moves):
            assert fen.split()[1] == "w" and len(moves) in (19, 20)
            return {"1": "f2f3", "2": "g2g4"}[fen.split()[-1]]

        def black(fen, moves):
            return {"1": "e7e5", "2": "d8h4"}[fen.split()[-1]]
        """,
    )
    players = {
        "player_0": OperatorConfig("chess", "white", policy=f"{file}:white"),
        "player_1": OperatorConfig("chess", "black", policy=f"{file}:black"),
    }
    ((white, black),), (steps,) = played(config_of(CHESS, players), tmp_path)
    assert (white.operator_id, white.total_reward) == ("white", -1.0)
    assert (black.operator_id, black.total_reward) == ("black", 1.0)
    assert [step["raw"] for step in steps] == ["f2f3", "e7e5", "g2g4", "d8h4"]
    assert steps[-1]["rewards"] == {"player_0": -1.0, "player_1": 1.0}
    assert (steps[-1]["reward"], steps[-1]["episode_reward"]) == (1.0, 1.0)
    assert [step["terminated"] for step in steps] == [False, False, False, True]


@pytest.mark.parametrize(
    ("env_id", "make", "n_actions"),
    [(RPS, rps.parallel_env, 3), (SPREAD, simple_spread_v3.parallel_env, 5)],
)
def test_players_of_a_simultaneous_game_are_paid_as_in_a_plain_loop(
    env_id, make, n_actions, tmp_path
):
    env = make()
    names = env.possible_agents
    config = config_of(env_id, dict.fromkeys(names, "random"))
    outcomes, records = played(config, tmp_path, seeds=[1, 2])
    for seed, all_of_them, steps in zip([1, 2], outcomes, records, strict=True):
        draw = generators(names, seed)
        env.reset(seed=seed)
        returns, actions = dict.fromkeys(names, 0.0), []
        while env.agents:
            # As `Space.sample` draws, of one action.
            chosen = {name: int(draw[name].integers(n_actions)) for name in env.agents}
            actions += chosen.values()
            for name, reward in env.step(chosen)[1].items():
                returns[name] += reward
        assert {one.player_id: one.total_reward for one in all_of_them} == returns
        assert [step["executed"] for step in steps] == actions
        assert {one.episode_length for one in all_of_them} == {len(actions) // len(names)}
        assert all(one.truncated and not one.terminated for one in all_of_them)
    env.close()


def test_players_who_act_at_the_same_time_are_asked_at_the_same_time(tmp_path):
    """Each of them answers only when it sees that all have been asked."""
    act = f"""
        import os

        FOLDER = {str(tmp_path)!r}

        def act(command):
            step = int(command["observation"][0] % 100)
            open(f"{{FOLDER}}/{{command['player_id']}}.step{{step}}", "w").close()
            while sum(name.endswith(f".step{{step}}") for name in os.listdir(FOLDER)) < 3:
                time.sleep(0.01)
            return [0.5, 0.5] if command["player_id"] == "b" else 1
        """
    game = script(
        tmp_path,
        "game.py",
        """
        from parllel.testing.dummy_parallel_env import CountingParallelEnv

        def game():
            return CountingParallelEnv({"a": 2, "b": 2, "c": 2})
        """,
    )
    config = config_of(
        f"{game}:game", {name: player(tmp_path, f"op-{name}", act) for name in "abc"}
    )
    (three,), (steps,) = played(config, tmp_path)
    assert [one.status for one in three] == ["ended"] * 3
    assert [one.episode_length for one in three] == [2] * 3
    assert [(step["player_id"], step["step"]) for step in steps] == [
        (player, number) for number in (1, 2) for player in "abc"
    ]


ZERO = "def act(command):\n    return 0"  # column 0 is full after six moves


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
    (both,), (steps,) = played(config, tmp_path, step_timeout_s=1.0)
    assert [one.lost for one in both] == [False, True]
    assert "player 'player_1'" in both[0].failure
    assert "did not answer within 1 s" in both[0].failure
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


def test_seats_are_rotated_from_episode_to_episode(tmp_path):
    rock = player(tmp_path, "rock", ZERO)
    paper = player(tmp_path, "paper", "def act(command):\n    return 1")
    config = config_of(RPS, {"player_0": rock, "player_1": paper}, seats="rotate")
    outcomes, records = played(config, tmp_path, seeds=[1, 1, 2])
    for episode, both in enumerate(outcomes):
        assert [one.operator_id for one in both] == ["rock", "paper"]
        assert [one.total_reward for one in both] == [-15.0, 15.0]
        seats = ["player_0", "player_1"]
        assert [one.player_id for one in both] == (seats[::-1] if episode == 1 else seats)
        first = records[episode][0]
        assert first["player_id"] == "player_0"
        assert first["operator_id"] == both[1 if episode == 1 else 0].operator_id


def test_a_player_of_another_program_chooses_among_the_legal_actions(tmp_path):
    last = player(tmp_path, "last", "def act(command):\n    return command['legal_actions'][-1]")
    config = config_of(FOUR, {"player_0": last, "player_1": "random"})
    outcomes, records = played(config, tmp_path, seeds=[1, 2])
    assert [one.status for both in outcomes for one in both] == ["ended"] * 4
    own = [step for step in records[1] if step["player_id"] == "player_0"]
    assert own
    assert not any(step["illegal"] for step in own)


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


def test_a_game_is_filmed_where_pictures_are_wanted(tmp_path):
    class Film:
        def __init__(self):
            self.frames = []

        def wants(self, episode):
            return episode == 0

        def add(self, env_id, episode, operator_id, payload):
            self.frames.append((env_id, episode, operator_id, payload["width"], payload["height"]))

    film = Film()
    last = "def act(command):\n    return command['legal_actions'][-1]"
    players = {seat: player(tmp_path, f"op-{seat}", last) for seat in ("player_0", "player_1")}
    config = config_of(FOUR, players, max_steps=5)
    with GameEpisodes(config, film=film) as game, OperatorLauncher(tmp_path) as launcher:
        handle = launcher.launch_multiagent_operator(config)
        for episode in range(2):
            assert game.play(handle, episode, 1)[0].status == "ended"
    assert len(film.frames) == 6
    assert set(film.frames) == {(FOUR, 0, "game", *film.frames[0][3:])}
    assert film.frames[0][3] > 100
