"""Policies below the root of a hierarchy: their task, and that they learn it."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from parllel import BatchSpec, Seeds
from parllel.buffers import buffer_leaves
from parllel.cages import MultiAgentTrajInfo, VectorEnvFactory
from parllel.distributed.messaging import ExecutionMode
from parllel.runners import resume, train
from parllel.testing import MockKafkaBroker
from parllel.torch import TorchHandler, agents_for
from parllel.transforms import EstimateMultiAgentAdvantage
from parllel_patterns import build_cages, build_sampler

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
pytestmark = pytest.mark.usefixtures("open_fonts")
LEVELS, SHARING = ("devices", "feeders"), ("shared", "independent")
SMALL = {"T": 16, "B": 4, "log_interval_steps": 128, "n_eval_episodes": 4}


@pytest.fixture
def module(monkeypatch):
    """A function that imports a file of the examples, as a script beside it does."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "messaging"))
    return importlib.import_module


def known(one_hot):
    """Return the signals [n, k] of one-hot vectors, and -1 for unknown ones."""
    parts = one_hot.reshape(len(one_hot), -1, 3)
    return np.where(parts.any(axis=-1), parts.argmax(axis=-1), -1)


def add_up(observation):
    """The best policy: the sums of each agent's own signals and those that it was sent."""
    actions = {}
    for name, own in observation.items():
        signals = known(own)
        half = signals.shape[1] // 2
        sums = (signals[:, :half] + signals[:, half:]) % 3
        actions[name] = sums[:, 0] if half == 1 else sums
    return actions


def play(tasks, level, policy, cut="none"):
    """Play an episode in many environments; return the rewards, [step, environment]."""
    env = tasks.make_device_signals(64, level, cut)
    try:
        observation, _ = env.reset(seed=0)
        rewards = []
        for _ in range(16):
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            rewards.append(reward)
        assert truncated.all()
        assert not terminated.any()
        return np.array(rewards)
    finally:
        env.close()


@pytest.mark.parametrize("level", LEVELS)
def test_who_adds_the_signals_up_gets_the_best_return_and_a_constant_gets_a_third(module, level):
    tasks, signals = module("device_signals"), module("signals")
    rewards = play(tasks, level, add_up)
    assert (rewards[1:] == 1.0).all()
    assert rewards[0].mean() == pytest.approx(1 / 3, abs=0.15)
    assert pytest.approx(15 + 1 / 3) == signals.BEST_RETURN

    def constant(observation):
        return {name: np.ones_like(action) for name, action in add_up(observation).items()}

    returns = play(tasks, level, constant).sum(axis=0)
    assert returns.mean() == pytest.approx(signals.CHANCE_RETURN, abs=0.5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cut", ["up", "down"])
def test_without_messages_one_way_the_counterparts_signals_are_unknown(module, level, cut):
    tasks, signals = module("device_signals"), module("signals")
    seen = []

    def look(observation):
        for own in observation.values():
            half = own.shape[1] // 2
            assert not own[:, half:].any()
            seen.append(own[:, :half].any())
        return add_up(observation)

    returns = play(tasks, level, look, cut).sum(axis=0)
    # Devices observe their own signals themselves. Feeders know them from reports.
    assert all(seen) == (level == "devices")
    assert returns.mean() == pytest.approx(signals.CHANCE_RETURN, abs=0.5)


def sample(tasks, level, sharing, **settings):
    """Return the batches that a sampler collects, by field, and its episodes' returns by agent."""
    # Batches end in the middle of an episode.
    seeds, batch_spec = Seeds(3), BatchSpec(T=20, B=6)
    make_env = VectorEnvFactory(partial(tasks.make_device_signals, level=level, **settings))
    cages = build_cages(make_env, batch_spec.B, seeds=seeds, traj_info=MultiAgentTrajInfo)
    agent = agents_for(cages[0].spaces, seeds=seeds, sharing=sharing, hidden_sizes=(16,))
    transforms = [EstimateMultiAgentAdvantage(0.9, 0.9)]
    batches = []
    with build_sampler(batch_spec, cages, TorchHandler(agent), [], transforms) as sampler:
        for elapsed in (0, batch_spec.size):
            samples, episodes = sampler.collect_batch(elapsed)
            fields = {path: np.array(leaf).tobytes() for path, leaf in buffer_leaves(samples)}
            batches.append((fields, [episode.returns for episode in episodes]))
    return batches


@pytest.mark.parametrize(("level", "sharing"), [*zip(LEVELS, SHARING, strict=True)])
def test_samples_over_brokers_are_those_of_direct_calls(module, level, sharing):
    pytest.importorskip("confluent_kafka")
    collect = partial(sample, module("device_signals"), level, sharing)
    expected = collect(execution_mode=ExecutionMode.SYNC)
    assert any(returns for _, returns in expected)
    assert "env.env_info.reward" in " ".join(expected[0][0])
    assert collect() == expected
    with MockKafkaBroker() as kafka:
        broker = {"kafka_mode": "kafka", "broker_kwargs": {"bootstrap": kafka.address}}
        assert collect(**broker) == expected


def test_the_script_runs_over_a_broker(example, tmp_path):
    pytest.importorskip("confluent_kafka")
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    options = [*sizes, "--n-steps=128", "--kafka=mock"]
    # It ends before the task is solved.
    printed = example("messaging/train_devices.py", *options, folder=tmp_path, status=1)
    assert "Finished after 128 environment steps" in printed
    (run,) = (tmp_path / "runs" / "devices").iterdir()
    assert run.name == "devices-shared-none-seed0"


def test_a_run_resumes_bit_for_bit(module, tmp_path):
    example = module("train_devices")
    _, whole = train(example.build, example.Config(**SMALL, n_steps=512), base=tmp_path)
    _, half = train(example.build, example.Config(**SMALL, n_steps=256), base=tmp_path)
    resume(half.path, changes={"n_steps": 512})
    _, expected = whole.checkpoints.load_newest()
    _, found = half.checkpoints.load_newest()
    for name in ("agent", "algorithm", "sampler"):
        assert str(found["parts"][name]) == str(expected["parts"][name])


@pytest.mark.parametrize(
    ("level", "sharing"), [("devices", "shared"), ("devices", "independent"), ("feeders", "shared")]
)
@pytest.mark.few(1)
def test_policies_below_the_root_learn(module, tmp_path, level, sharing):
    example, signals = module("train_devices"), module("signals")
    config = example.Config(
        level=level, sharing=sharing, n_steps=8192, log_interval_steps=2048, n_eval_episodes=16
    )
    result, _ = train(example.build, config, base=tmp_path)
    (_, untrained), *_ = result.curves["evaluation"]
    assert untrained < 1.25 * signals.CHANCE_RETURN
    assert result.solved
    assert result.evaluation_return >= 0.95 * signals.BEST_RETURN


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("level", LEVELS)
def test_messages_both_ways_are_needed_to_learn(module, tmp_path, level, sharing, seed):
    example, signals = module("train_devices"), module("signals")
    for cut in ("none", "up", "down"):
        config = example.Config(level=level, sharing=sharing, cut=cut, seed=seed)
        result, _ = train(example.build, config, base=tmp_path)
        if cut == "none":
            assert result.solved
        else:
            assert result.evaluation_return < 1.25 * signals.CHANCE_RETURN
