from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parllel.runners import resume, train
from parllel.testing import MockKafkaBroker

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
pytestmark = pytest.mark.usefixtures("open_fonts")


def module(monkeypatch, name):
    """Import a file of the examples, as a script beside it does."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "messaging"))
    return importlib.import_module(name)


def roll_out(*arguments):
    """Run the grid, and return the digest of its rollouts."""
    command = [sys.executable, EXAMPLES / "messaging" / "grid.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rollouts, digest = done.stdout.splitlines()
    assert rollouts.startswith(f"{arguments[1]} rollouts")
    return digest


def test_rollouts_are_the_same_by_calls_in_memory_and_over_a_broker():
    sizes = ["--num-envs", "5", "--episodes", "2", "--steps", "4"]
    with MockKafkaBroker() as kafka:
        digests = [
            roll_out(*sizes, *where) for where in ([], ["--sync"], ["--kafka", kafka.address])
        ]
    assert len(set(digests)) == 1
    assert roll_out("--num-envs", "6", *sizes[2:]) != digests[0]


def play(signals, cut, settings_of):
    """Play an episode in many environments; return the rewards, [step, environment]."""
    env = signals.make_signals(64, cut)
    try:
        observation, _ = env.reset(seed=0)
        rewards = []
        for _ in range(signals.MAX_STEPS):
            observation, reward, terminated, truncated, _ = env.step(settings_of(observation))
            rewards.append(reward)
        assert truncated.all()
        assert not terminated.any()
        return np.array(rewards)
    finally:
        env.close()


def test_who_passes_the_signals_on_gets_the_evaluation_return_that_the_task_states(monkeypatch):
    signals = module(monkeypatch, "signals")
    others = [signals.DEVICES.index(signals.OTHER[device]) for device in signals.DEVICES]

    def pass_on(observation):
        return np.where(observation[:, others] == signals.UNKNOWN, 0, observation[:, others])

    rewards = play(signals, "none", pass_on)
    assert (rewards[1:] == 1.0).all()
    error = 1 / 3 / 64**0.5
    assert rewards[0].mean() == pytest.approx(1 / signals.N_SIGNALS, abs=3 * error)
    assert pytest.approx(15 + 1 / 3) == signals.BEST_RETURN


def test_without_messages_up_nothing_is_known(monkeypatch):
    signals = module(monkeypatch, "signals")
    seen = []

    def look(observation):
        seen.append(observation.copy())
        return np.zeros_like(observation)

    returns = play(signals, "up", look).sum(axis=0)
    assert (np.array(seen) == signals.UNKNOWN).all()
    assert returns.mean() == pytest.approx(signals.CHANCE_RETURN, abs=0.5)


def test_without_messages_down_nothing_can_be_done(monkeypatch):
    signals = module(monkeypatch, "signals")
    none, some = (
        play(signals, "down", lambda observation, to=to: np.full_like(observation, to))
        for to in (0, 2)
    )
    np.testing.assert_array_equal(none, some)
    assert none.sum(axis=0).mean() == pytest.approx(signals.CHANCE_RETURN, abs=0.5)


SMALL = {"T": 16, "B": 8, "log_interval_steps": 256, "n_eval_episodes": 4}


def test_a_run_over_the_broker_in_memory_resumes_bit_for_bit(monkeypatch, tmp_path):
    example = module(monkeypatch, "train_signals")
    _, whole = train(example.build, example.Config(**SMALL, n_steps=1024), base=tmp_path)
    _, half = train(example.build, example.Config(**SMALL, n_steps=512), base=tmp_path)
    resume(half.path, changes={"n_steps": 1024})
    _, expected = whole.checkpoints.load_newest()
    _, found = half.checkpoints.load_newest()
    for name in ("agent", "algorithm", "sampler"):
        assert str(found["parts"][name]) == str(expected["parts"][name])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
def test_messages_both_ways_are_needed_to_learn(monkeypatch, tmp_path, seed):
    signals, example = (module(monkeypatch, name) for name in ("signals", "train_signals"))
    results = {}
    for cut in ("none", "up", "down"):
        config = example.Config(cut=cut, seed=seed)
        results[cut], _ = train(example.build, config, base=tmp_path)
    assert results["none"].solved
    assert results["none"].evaluation_return >= 0.9 * signals.BEST_RETURN
    for cut in ("up", "down"):
        assert results[cut].evaluation_return < 1.25 * signals.CHANCE_RETURN
