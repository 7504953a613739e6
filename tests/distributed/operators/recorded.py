"""Folders of experiments with telemetry that a test writes, instead of workers."""

from __future__ import annotations

import json

from parllel.distributed.operators.experiments.experiment_folder import ExperimentFolder
from parllel.distributed.operators.experiments.telemetry import Telemetry


def write_experiment(base, operators, name="told"):
    """Write an experiment and return its folder.

    operators: by id, `write(telemetry)`, or `(write, players)` for a game of players {seat: operator}.
    """
    configs = []
    for one, told in operators.items():
        players = told[1] if isinstance(told, tuple) else None
        configs.append({"operator_id": one, "env_id": "told-v0"})
        if players is not None:
            configs[-1]["players"] = {
                seat: {"operator_id": player} for seat, player in players.items()
            }
    with ExperimentFolder(
        base, {"name": name, "operators": configs, "episodes": None, "mode": "free"}
    ) as folder:
        for one, told in operators.items():
            write = told[0] if isinstance(told, tuple) else told
            with Telemetry(folder.telemetry, folder.run_id(one)) as telemetry:
                write(telemetry)
        return folder.path


def episodes(operator, rewards_by_seed, **more):
    """Return a function that writes an episode for each seed, with these rewards."""

    def write(telemetry):
        for number, (seed, rewards) in enumerate(rewards_by_seed.items()):
            play(telemetry, operator, number, seed, rewards, **more)

    return write


def play(telemetry, operator, number, seed, rewards, *, status="ended", is_noted=True, **more):
    """Write one episode; `more`: fields of each step."""
    labels = {"operator_id": operator, "env_id": "told-v0", "episode": number, "seed": seed}
    total = 0.0
    for step, reward in enumerate(rewards, 1):
        total += reward
        result = {"reward": reward, "episode_reward": total, "terminated": step == len(rewards)}
        telemetry.step({**labels, "step": step, "action": step % 3, **result, **more})
    if is_noted:
        outcome = {"status": status, "total_reward": total, "episode_length": len(rewards)}
        telemetry.episode({**labels, **outcome})


def lines(folder, name):
    """Return the records of a file of telemetry, read by nothing of ours."""
    text = (folder / "telemetry" / name).read_text()
    return [json.loads(line) for line in text.splitlines()]
