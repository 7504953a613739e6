"""Training with tuned settings by name."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from parllel import load_policy, play_episodes
from parllel.errors import UnusableDeviceError
from parllel.runners import resume
from parllel.runs import RunFolder
from parllel.runs.reference import import_script
from parllel_patterns import TUNED, TunedPpo, make_tuned_env, tuned

SCRIPT = Path(__file__).parents[2] / "examples" / "gallery" / "train.py"
TINY = ["--n-steps", "2048", "--log-interval-steps", "1024", "--n-eval-episodes", "2"]


def test_a_name_trains_resumes_and_plays(example, tmp_path, open_fonts):
    flags = [*TINY, "--B", "2", "--ppo.minibatches", "2", "--seeds", "3", "4"]
    said = example("gallery/train.py", "doorkey-ppo", *flags, folder=tmp_path)
    runs = tmp_path / "runs" / "gallery"
    for seed in (3, 4):
        assert f"Everything about this run is in runs/gallery/doorkey-ppo-seed{seed}" in said
    record = RunFolder.open(runs / "doorkey-ppo-seed3").read_record()
    assert record.outcome["elapsed_steps"] == 2048
    config = record.read_config()
    assert config == replace(
        tuned("doorkey-ppo"),
        seed=3,
        n_steps=2048,
        log_interval_steps=1024,
        n_eval_episodes=2,
        B=2,
        ppo=replace(tuned("doorkey-ppo").ppo, minibatches=2),
    )
    result, _ = resume(runs / "doorkey-ppo-seed3", changes={"n_steps": 3072})
    assert result.elapsed_steps == 3072
    with closing(load_policy(runs / "doorkey-ppo-seed3")) as policy:
        assert policy.elapsed_steps == 3072
        (episode,) = play_episodes(policy, policy.make_env, [5])
    assert 0 <= episode.traj.return_ <= 1


def test_a_resumed_run_keeps_its_own_settings(example, tmp_path, open_fonts):
    example("gallery/train.py", "cartpole-ppo", *TINY, "--discount", "0.5", folder=tmp_path)
    run = "runs/gallery/cartpole-ppo-seed0"
    more = ["--resume", run, "--n-steps", "4096"]
    example("gallery/train.py", "cartpole-ppo", *more, folder=tmp_path)
    record = RunFolder.open(tmp_path / run).read_record()
    assert record.outcome["elapsed_steps"] == 4096
    assert record.read_config().discount == 0.5


def test_without_a_name_all_are_listed(example, tmp_path):
    said = example("gallery/train.py", folder=tmp_path)
    assert all(f"{name} " in said and config.env_id in said for name, config in TUNED.items())


def test_unknown_names_are_refused(scripts, tmp_path):
    done = scripts.run(SCRIPT, "cartpol-ppo", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown settings 'cartpol-ppo'; did you mean 'cartpole-ppo'?" in done.stderr
    with pytest.raises(ValueError, match=r"unknown settings 'x'; expected one of cartpole-ppo, "):
        tuned("x")
    with pytest.raises(TypeError, match=r"tuned: expected a name such as 'cartpole-ppo', got 3"):
        tuned(3)


@pytest.mark.parametrize("name", TUNED)
def test_settings_fit_their_algorithm_and_environment(tmp_path, name):
    config = TUNED[name]
    with ExitStack() as stack:
        runner = import_script(SCRIPT).build(config, stack, RunFolder(tmp_path, name), None)
        assert runner.n_steps == config.n_steps
    # Otherwise the two sides of the benchmark have points at different steps.
    assert config.log_interval_steps % (config.T * config.B) == 0
    assert config.n_steps % config.log_interval_steps == 0
    if isinstance(config, TunedPpo):
        assert config.ppo.learning_rate_anneal_steps in (None, config.n_steps)


def test_models_are_put_on_the_device_of_the_config(tmp_path):
    config = replace(tuned("cartpole-ppo"), device="cuda:63")
    refused = pytest.raises(UnusableDeviceError, match="got 'cuda:63'")
    with ExitStack() as stack, refused:
        import_script(SCRIPT).build(config, stack, RunFolder(tmp_path, "run"), None)


def test_views_of_minigrid_are_flat():
    env = make_tuned_env("MiniGrid-DoorKey-5x5-v0")
    seen, _ = env.reset(seed=0)
    (raw, _), scale = env.unwrapped.reset(seed=0), 10
    assert env.observation_space.contains(seen)
    assert (seen * scale).round().astype(int).tolist() == raw["image"].ravel().tolist()
    env.close()
