"""Episodes of games between operators in processes of their own, against loops over PettingZoo itself."""

from __future__ import annotations

import numpy as np
import pytest
from keeping_viewer import KeepingViewer
from mpe2 import simple_spread_v3
from pettingzoo.classic.chess import chess
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.rps import rps
from playing_games import CHESS, FOUR, RPS, SPREAD, ZERO, config_of, played, player, script

from parllel.distributed.operators import OperatorConfig, OperatorLauncher
from parllel.distributed.operators.games.game_episodes import GameEpisodes
from parllel.seeding import Seeds


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
@pytest.mark.few(1)
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


def test_a_game_is_filmed_where_pictures_are_wanted(tmp_path):
    film = KeepingViewer(episodes=[0])
    last = "def act(command):\n    return command['legal_actions'][-1]"
    players = {seat: player(tmp_path, f"op-{seat}", last) for seat in ("player_0", "player_1")}
    config = config_of(FOUR, players, max_steps=5)
    with GameEpisodes(config, viewers=[film]) as game, OperatorLauncher(tmp_path) as launcher:
        handle = launcher.launch_multiagent_operator(config)
        for episode in range(2):
            assert game.play(handle, episode, 1)[0].status == "ended"
    *places, pictures = zip(*film.seen, strict=True)
    assert [*zip(*places, strict=True)] == [("game", FOUR, 0, step) for step in range(6)]
    assert len({picture["width"] for picture in pictures}) == 1
    assert pictures[0]["width"] > 100
