from __future__ import annotations

import json

import numpy as np
import pytest
from launching import run_worker
from pettingzoo.classic.connect_four import connect_four

from parllel.distributed.operators.games.player_spaces import make_game_env
from parllel.distributed.operators.workers.game_against_random import GameAgainstRandom
from parllel.seeding import Seeds

FOUR = "pettingzoo/classic/connect_four_v3"


def in_a_plain_loop(seed):
    """Return how long and how well the first legal move does, in the seat of the seed."""
    env = connect_four.env()
    env.reset(seed=seed)
    seat, draw = env.possible_agents[seed % 2], Seeds(seed).generator("others")
    total, length = 0.0, 0
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        total += reward * (agent == seat)
        if terminated or truncated:
            env.step(None)
            continue
        legal = np.flatnonzero(observation["action_mask"])
        length += agent == seat
        env.step(int(legal[0 if agent == seat else draw.integers(len(legal))]))
    env.close()
    return total, length


def test_one_player_plays_against_random_moves():
    env = GameAgainstRandom(make_game_env(FOUR))
    found = {}
    for seed in range(12):
        observation, info = env.reset(seed=seed)
        total, length, over = 0.0, 0, False
        while not over:
            assert "is_success" not in info
            assert np.flatnonzero(observation["action_mask"]).tolist() == info["legal_actions"]
            observation, reward, terminated, truncated, info = env.step(info["legal_actions"][0])
            total, length, over = total + reward, length + 1, terminated or truncated
        assert info == {"is_success": total > 0}
        assert env.observation_space.contains(observation)
        found[seed] = (total, length)
    env.close()
    assert found == {seed: in_a_plain_loop(seed) for seed in range(12)}
    assert {total for total, _ in found.values()} == {1.0, -1.0}


def test_episodes_without_seeds_follow_from_the_last_one():
    env = GameAgainstRandom(make_game_env(FOUR))
    rounds = []
    for _ in range(2):
        env.reset(seed=1)
        rounds.append([env.reset()[0]["observation"].sum() for _ in range(8)])
    env.close()
    assert rounds[0] == rounds[1]
    # Both seats: the second begins with a piece of the other on the board.
    assert set(rounds[0]) == {0, 1}


def test_chess_is_played_in_batches(tmp_path):
    file = tmp_path / "last.py"
    file.write_text("def last(fen, moves):\n    return moves[-1]\n")
    folder = tmp_path / "telemetry"
    done = run_worker(
        "chess_worker",
        f"--policy={file}:last",
        "--seeds=2:4",
        "--max-steps=5",
        f"--telemetry-dir={folder}",
    )
    assert done.returncode == 0, done.stderr
    episodes = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["seed"], one["episode_length"], one["truncated"]) for one in episodes] == [
        (2, 5, True),
        (3, 5, True),
    ]
    (steps,) = (path.read_text().splitlines() for path in folder.glob("*_steps.jsonl"))
    # Of the legal moves in the order of their numbers, from the eighth column on.
    assert json.loads(steps[0])["raw"] == "h2h4"
    assert len(steps) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy=elo3000"], "--policy: expected random, file.py or file.py:name"),
        (["--policy=random", "--env-id=CartPole-v1"], "--env-id: expected pettingzoo/classic"),
    ],
)
def test_what_plays_no_chess_is_refused(arguments, message):
    done = run_worker("chess_worker", *arguments)
    assert done.returncode == 1
    assert message in done.stderr
