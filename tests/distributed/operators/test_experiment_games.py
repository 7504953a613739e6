"""Games in experiments: a row for each player, over all seatings."""

from __future__ import annotations

import json

import pytest
from left_records import records

from parllel.distributed.operators import (
    Experiment,
    MultiAgentConfig,
    OperatorConfig,
)

RPS = "pettingzoo/classic/rps_v2"


def player(operator_id, policy="random"):
    return OperatorConfig("baseline", operator_id, policy=policy)


def test_players_change_seats_and_are_compared_by_their_operators(tmp_path):
    always_first = tmp_path / "rock.py"
    always_first.write_text("def rock(observation):\n    return 0\n")
    paper = tmp_path / "paper.py"
    paper.write_text("def paper(observation):\n    return 1\n")
    game = MultiAgentConfig(
        "throws",
        RPS,
        {
            "player_0": player("rock", f"{always_first}:rock"),
            "player_1": player("paper", f"{paper}:paper"),
        },
        env_kwargs={"max_cycles": 4},
        seats="rotate",
    )
    alone = OperatorConfig("baseline", "alone", "CartPole-v1", policy="noop")
    experiment = Experiment("game", [game, alone], seeds=[1, 2, 3], success={RPS: 1}, video=1)
    result = experiment.run(tmp_path / "runs")
    assert result.failures == ()
    throws, cartpole = result.groups
    assert (throws.group, cartpole.group) == (f"throws ({RPS})", "CartPole-v1")
    rock, wraps = throws.operators
    # Three seeds in two seatings; paper wins each of four throws, whatever its seat.
    assert (rock.asked, rock.ended, wraps.ended) == (6, 6, 6)
    assert (rock.total_reward.mean, wraps.total_reward.mean) == (-4.0, 4.0)
    assert (rock.success.mean, wraps.success.mean) == (0.0, 1.0)
    (difference,) = throws.differences
    assert (difference.operator_id, difference.total_reward.mean) == ("paper", 8.0)
    episodes = records(result.folder, "game_throws", "episodes")
    places = [(e["episode"], e["seed"], e["operator_id"], e["player_id"]) for e in episodes]
    assert places[:4] == [
        (0, 1, "rock", "player_0"),
        (0, 1, "paper", "player_1"),
        (1, 1, "rock", "player_1"),
        (1, 1, "paper", "player_0"),
    ]
    steps = records(result.folder, "game_throws", "steps")
    assert {(s["operator_id"], s["executed"]) for s in steps} == {("rock", 0), ("paper", 1)}
    assert {s["game_id"] for s in steps} == {"throws"}
    videos = sorted(path.name for path in (result.folder / "videos").iterdir())
    assert videos == ["CartPole-v1-episode-0.mp4", "pettingzoo-classic-rps_v2-episode-0.mp4"]
    # The operator that is no game's has as many episodes as there are seeds.
    assert cartpole.operators[0].ended == 3


def test_a_player_that_fails_is_named_and_the_next_episode_is_played(tmp_path):
    once = tmp_path / "once.py"
    once.write_text(
        "import os, pathlib\n"
        "def once(observation):\n"
        f"    flag = pathlib.Path({str(tmp_path / 'flag')!r})\n"
        "    if not flag.exists():\n"
        "        flag.touch()\n"
        "        os._exit(9)\n"
        "    return 1\n"
    )
    players = {"player_0": player("random"), "player_1": player("once", f"{once}:once")}
    game = MultiAgentConfig("throws", RPS, players, env_kwargs={"max_cycles": 4})
    result = Experiment("dies", [game], seeds=[1, 2], restarts=1).run(tmp_path / "runs")
    random, once_ = result.groups[0].operators
    assert [(one.ended, one.failed) for one in (random, once_)] == [(1, 1), (1, 1)]
    assert result.exit_status == 1
    assert "player 'player_1' (once)" in result.failures[0]
    assert "exited with code 9" in result.failures[0]
    outcome = json.loads((result.folder / "run.json").read_text())["outcome"]
    assert (outcome["episodes"], outcome["failed"]) == (2, 2)


def test_a_game_that_does_not_exist_is_refused_before_anything_is_started(tmp_path):
    players = {"player_0": player("a"), "player_1": player("b")}
    game = MultiAgentConfig("throws", "pettingzoo/classic/rps_v0", players)
    with pytest.raises(ValueError, match="rps_v0"):
        Experiment("none", [game], seeds=[1]).run(tmp_path / "runs")
    three = MultiAgentConfig("throws", RPS, {**players, "player_2": player("c")})
    with pytest.raises(ValueError, match=r"game 'throws': players: .* expects operators for"):
        Experiment("none", [three], seeds=[1]).run(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
