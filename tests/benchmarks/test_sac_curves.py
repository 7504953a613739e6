"""Learning curves of SAC beside those of Stable-Baselines3: trained once each, and continued."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("mujoco")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def tiny():
    from benchmarks.end_to_end.settings import SacSettings

    return replace(
        SacSettings(), n_steps=2000, learning_starts=1000, transitions=8, hidden_sizes=(8, 8)
    )


def options_for(output):
    return argparse.Namespace(output=output, timeout=100.0)


@pytest.mark.parametrize("name", ["OURS", pytest.param("SB3", marks=pytest.mark.soak)])
def test_a_training_is_written_once(tmp_path, monkeypatch, tiny, name):
    from benchmarks.end_to_end import curves, sac
    from benchmarks.peers import venvs

    side = getattr(sac, name)
    if side.venv is not None and venvs.python_of(side.venv) is None:
        pytest.skip(f"no virtual environment for {side.title}")
    options = options_for(tmp_path / "curves.json")
    report = sac.STUDY.begin(options.output, tiny)
    sac.STUDY.add_training(report, side, tiny, options)
    written = json.loads(options.output.read_text())
    (training,) = written["sides"][side.name]["trainings"]
    # Two episodes of 1000 steps make one point.
    ((steps, mean),) = training["curve"]
    assert steps == 2000
    assert -1000 < mean < 200  # hardly learnt
    assert training["last"] == mean
    assert "torch" in written["sides"][side.name]["libraries"]

    # A later start goes on with what is missing, and trains nothing twice.
    monkeypatch.setattr(curves, "train", None)
    continued = sac.STUDY.begin(options.output, replace(tiny, seed=1))
    sac.STUDY.add_training(continued, side, tiny, options)
    assert continued == written


def test_other_settings_are_refused(tmp_path, tiny):
    from benchmarks.end_to_end import sac

    path = tmp_path / "curves.json"
    path.write_text(json.dumps(sac.STUDY.begin(path, tiny)))
    with pytest.raises(SystemExit, match="other settings"):
        sac.STUDY.begin(path, replace(tiny, n_steps=3000))


def test_the_table_says_how_far_the_means_are_apart():
    from benchmarks.end_to_end import sac

    def side(title, lasts):
        trainings = [
            {"seed": seed, "last": last, "curve": [[5000, last / 2], [10_000, last]]}
            for seed, last in enumerate(lasts)
        ]
        return {"title": title, "libraries": {}, "trainings": trainings}

    sides = {
        "ours": side("parllel", [10.0, 20.0, 30.0, 40.0, 50.0]),
        "sb3": side("Stable-Baselines3", [11.0, 21.0, 31.0, 41.0, 51.0]),
    }
    settings = {"env": "E", "n_steps": 10_000, "learning_starts": 5}
    report = {"settings": settings, "sides": sides, **sac.STUDY.comparison(sides)}
    assert report["last_episodes"]["difference"] == -1.0
    assert report["last_episodes"]["low"] < -10
    assert report["last_episodes"]["high"] > 10
    assert report["learning_curves"]["verdict"] == "alike"
    assert "The means differ by -1 (95 % interval" in sac.STUDY.markdown(report)
