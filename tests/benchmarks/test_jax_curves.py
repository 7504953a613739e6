"""Learning curves of PPO in JAX and in PyTorch: both sides train, with the same settings."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

pytestmark = pytest.mark.soak
ROOT = Path(__file__).parents[2]


def test_both_sides_are_trained_and_compared(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.end_to_end.jax_ppo import STUDY

    settings = replace(STUDY.settings, n_steps=4096, hidden_sizes=(8, 8), epochs=1)
    options = argparse.Namespace(output=tmp_path / "curves.json", timeout=100.0)
    report = STUDY.begin(options.output, settings)
    for seed in range(2):
        for side in STUDY.sides:
            STUDY.add_training(report, side, replace(settings, seed=seed), options)
    for name, library in (("jax", "jax"), ("torch", "torch")):
        found = report["sides"][name]
        assert library in found["libraries"]
        assert [training["seed"] for training in found["trainings"]] == [0, 1]
        for training in found["trainings"]:
            # Two batches make one point.
            ((steps, mean),) = training["curve"]
            assert steps == 4096
            assert 9 < mean < 60  # hardly learnt
    said = STUDY.markdown({**report, **STUDY.comparison(report["sides"])})
    assert "PPO on CartPole-v1, 4,096 steps with 2 seeds each, 16 environments" in said
    assert "Whole curves: alike" in said
