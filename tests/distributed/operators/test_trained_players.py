"""The policy of a run as a player of a game, whose other players it was trained against."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from parllel.distributed.operators import MultiAgentConfig, OperatorConfig, OperatorLauncher
from parllel.distributed.operators.games.game_episodes import GameEpisodes
from parllel.policies import load_policy
from parllel.runners import checkpointing, train
from parllel.runs.reference import import_script
from parllel.seeding import Seeds
from parllel.testing import RockPaperScissorsEnv

GAME = f"{Path(__file__).with_name('rock_paper_scissors.py')}:game"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return the path of a run."""
    monkeypatch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    winning = import_script(Path(__file__).parents[2] / "policies" / "winning_run.py")
    config = winning.Config(n_batches=2, n_episodes=16)
    _, folder = train(winning.build, config, base=tmp_path, name="red")
    torch.set_num_threads(threads)
    return str(folder.path)


def in_this_process(run, seeds):
    """Return the moves of red and the returns of blue, in a loop that is written out."""
    env, moves, returns = RockPaperScissorsEnv(), [], []
    with load_policy(run) as red:
        for seed in seeds:
            own = {
                p: Seeds(Seeds(seed).integer(f"player {p}")).integer("policy")
                for p in ("red", "blue")
            }
            red.reset([0], [own["red"]])
            blue = Seeds(own["blue"]).generator("actions")
            observations, _ = env.reset(seed=seed)
            returns.append(0.0)
            while env.agents:
                moves.append(int(red.act_one(observations["red"])))
                actions = {"red": moves[-1], "blue": int(blue.integers(0, 3, dtype=np.int64))}
                observations, rewards, *_ = env.step(actions)
                returns[-1] += rewards["blue"]
    return moves, returns


def test_a_run_plays_as_it_does_in_this_process(run, tmp_path):
    config = MultiAgentConfig(
        "match",
        GAME,
        {
            "red": OperatorConfig("rl", "trained", policy=run),
            "blue": OperatorConfig("baseline", "random", policy="random"),
        },
    )
    steps, outcomes = [], []
    with GameEpisodes(config) as game, OperatorLauncher(tmp_path) as launcher:
        handle = launcher.launch_multiagent_operator(config)
        for episode, seed in enumerate(range(5)):
            outcomes += game.play(handle, episode, seed, record_step=steps.append)
    moves, returns = in_this_process(run, range(5))
    assert [step["executed"] for step in steps if step["player_id"] == "red"] == moves
    assert [one.total_reward for one in outcomes if one.player_id == "blue"] == returns
    assert len(set(moves)) > 1
