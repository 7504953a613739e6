"""The benchmark of vector environments: its report, and the sides that it times."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def rates(**others):
    found = {
        "gymnasium SyncVectorEnv": [100.0, 100.0],
        "gymnasium AsyncVectorEnv": [10.0, 12.5],
        "VectorEnv, as planned": [130.0, 130.0],
        "VectorEnv, in this process": [90.0, 110.0],
        "SB3 DummyVecEnv": [100.0, 110.0],
        "SB3 SubprocVecEnv": [10.0, 10.0],
        "VecEnv, as planned": [100.0, 110.0],
        "VecEnv, in this process": [99.0, 90.0],
    }
    return {**found, **others}


def trained():
    return {name: values for name, values in rates().items() if name.startswith(("SB3", "VecEnv"))}


def test_each_goal_has_a_line():
    pytest.importorskip("stable_baselines3")
    from benchmarks.vector.__main__ import FULL
    from benchmarks.vector.report import answers, markdown

    scenes = {"cartpole": rates(), "pong": rates(**{"SB3 SubprocVecEnv": [200.0, 65.0]})}
    trainings = {"cartpole": trained()}
    found = [one.as_dict() for one in answers(scenes, trainings)]
    values = {answer["name"]: answer["values"] for answer in found}
    assert values == {
        "cartpole/gymnasium SyncVectorEnv": pytest.approx([1.3, 1.3]),
        "cartpole/gymnasium AsyncVectorEnv": pytest.approx([13.0, 10.4]),
        "cartpole/SB3 DummyVecEnv": pytest.approx([1.0, 1.0]),
        "cartpole/SB3 SubprocVecEnv": pytest.approx([10.0, 11.0]),
        "cartpole/here": pytest.approx([0.9, 1.1]),
        # The best of the others changes with the scene.
        "pong/best": pytest.approx([0.65, 2.0]),
        "pong/here": pytest.approx([0.9, 1.1]),
        "cartpole/ppo": pytest.approx([1.0, 1.0]),
    }
    met = {answer["name"]: answer["met"] for answer in found}
    assert [name for name, one in met.items() if one] == [
        "cartpole/gymnasium SyncVectorEnv",
        "cartpole/gymnasium AsyncVectorEnv",
        "cartpole/SB3 SubprocVecEnv",
    ]
    assert met["cartpole/ppo"] is None
    text = markdown(
        {
            "machine": {"cores": 2, "cpu": "CPU", "python": "CPython 3.11"},
            "settings": asdict(FULL),
            "rates": scenes,
            "trainings": trainings,
            "answers": found,
        }
    )
    assert "| gymnasium SyncVectorEnv | 100 | 100 |" in text
    assert "VectorEnv against the best of the others, SB3 SubprocVecEnv" in text


def test_sides_count_the_steps_of_their_environments():
    pytest.importorskip("stable_baselines3")
    from benchmarks.vector.sides import N, sides_of

    sides = sides_of("cartpole")
    observations = []
    for name in (
        "gymnasium SyncVectorEnv",
        "VectorEnv, in this process",
        "SB3 DummyVecEnv",
        "VecEnv, in this process",
    ):
        side = sides[name]()
        before = side.t
        assert side() == (side.t - before) * N
        observations.append(side.env.step(side.actions[0])[0])
        side.close()
    # Each is compared with one that plays the same episodes.
    np.testing.assert_array_equal(observations[0], observations[1])
    np.testing.assert_array_equal(observations[2], observations[3])
