from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.end_to_end", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
    )


@pytest.fixture(scope="module", autouse=True)
def repository_on_path():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


@pytest.fixture
def tiny():
    from benchmarks.end_to_end.settings import Settings

    return Settings(n_steps=64, T=8, B=4, hidden_sizes=(8, 8), learning_rate=1e-2)


@pytest.mark.parametrize(
    ("scene", "sides", "least", "most"),
    [
        ("cartpole", ["in_turn", "overlapped", "cleanrl_style"], 10, 60),  # hardly learnt
        # As the other, for twenty seconds.
        pytest.param(
            *("halfcheetah", ["overlapped", "cleanrl_style"], -900, 100), marks=pytest.mark.soak
        ),
    ],
)
def test_a_quick_run_trains_and_compares(tmp_path, scene, sides, least, most):
    output = tmp_path / "new" / "figures.json"
    steps = 6144 if scene == "cartpole" else 18_432  # in which episodes of 1000 steps end
    options = ["--quick", "--seeds", 1, "--steps", steps, "--only", scene, "--sides", *sides]
    ran = run(*options, "--output", output)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(output.read_text())
    assert report["settings"] == {"quick": True, "n_seeds": 1}
    assert report["left_out"] == []
    (found,) = report["scenes"]
    assert found["name"] == scene
    assert found["settings"]["n_batches"] == steps // 2048
    assert list(found["sides"]) == sides
    trainings = {name: side["trainings"] for name, side in found["sides"].items()}
    for (training,) in trainings.values():
        assert training["sampling_ms"] > 0
        assert training["learning_ms"] > 0
        end, height = training["curve"][-1]
        assert end == steps
        assert least < height < most
    assert [(one["ours"], one["peer"]) for one in found["comparisons"]] == [
        (name, "cleanrl_style") for name in sides[:-1]
    ]
    for one in found["comparisons"]:
        rates = [trainings[one[name]][0]["steps_per_second"] for name in ("ours", "peer")]
        faster = one["times_faster"]
        assert faster["median"] == faster["low"] == pytest.approx(rates[0] / rates[1], rel=1e-3)
        assert faster["met"] == (faster["low"] >= faster["target"])
        assert one["learning_curves"]["p_value"] == 1.0
    assert found["sides"]["cleanrl_style"]["title"] in ran.stdout
    assert output.with_suffix(".png").stat().st_size > 5000
    assert str(ROOT) not in output.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--sides", "in_turn", "sb4"],
            "expected some of in_turn, overlapped, compiled, sb3, cleanrl_style, got sb4",
        ),
        (["--only", "pong"], "--only: expected some of cartpole, halfcheetah, got pong"),
        (["--steps", "100"], "--steps: expected steps for two batches, got 100"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, message):
    ran = run(*options, "--output", tmp_path / "none.json")
    assert ran.returncode == 2
    assert message in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_goals_are_those_that_were_set():
    from benchmarks.end_to_end.scenes import SCENES

    goals = {
        (scene.name, side): goal.target for scene in SCENES for side, goal in scene.goals.items()
    }
    assert goals == {
        ("cartpole", "in_turn"): 4.0,
        ("cartpole", "overlapped"): 6.0,
        ("cartpole", "compiled"): 7.0,
        ("halfcheetah", "in_turn"): 2.5,
        ("halfcheetah", "overlapped"): 2.5,
    }


def test_settings_travel_as_json(tiny):
    assert type(tiny).from_json(tiny.to_json()) == tiny
    assert tiny.n_batches == 2
    assert type(tiny)(n_steps=300_000).n_batches == 146
    assert type(tiny)().n_batches == 100


# T, B and batches of short trainings in which episodes end.
SHORT = {"cartpole": (64, 8, 3), "halfcheetah": (260, 4, 4)}


@functools.cache
def returns_of(name, side, title):
    """Return the returns of each batch that a scene's side has under one of its settings."""
    from benchmarks.end_to_end.scenes import SCENES
    from benchmarks.end_to_end.training import train

    (scene,) = (scene for scene in SCENES if scene.name == name)
    T, B, n_batches = SHORT[name]
    settings = replace(scene.settings, n_steps=T * B * n_batches, T=T, B=B, epochs=2, seed=3)
    (side,) = (one for one in scene.sides if one.name == side)
    (variant,) = (one for one in side.variants if one.name == title)
    return train(sys.executable, side, variant, settings, line_s=45.0).returns


@pytest.mark.parametrize(
    ("scene", "one", "other"),
    [
        ("cartpole", "small policy in main and worker", "this process, torch"),
        ("cartpole", "alternating groups, small policy", "this process, torch"),
        # Continuous actions follow the rounding of the policy, so the same policy.
        pytest.param(
            *("halfcheetah", "participating main, small policy", "this process, small policy"),
            marks=pytest.mark.soak,
        ),
    ],
)
@pytest.mark.few(1)
@pytest.mark.soak
def test_every_setting_in_turn_learns_the_same(scene, one, other):
    """Where environments are stepped and who computes the policy changes no episode."""
    expected = returns_of(scene, "in_turn", other)
    assert sum(map(len, expected)) >= 4
    assert returns_of(scene, "in_turn", one) == expected


@pytest.mark.soak
def test_compiled_environments_play_the_same_episodes():
    here = "this process, small policy"
    assert returns_of("cartpole", "compiled", here) == returns_of("cartpole", "in_turn", here)


@pytest.mark.soak
def test_overlapped_only_the_weights_are_older():
    found = returns_of("cartpole", "overlapped", "sampling process, small policy")
    in_turn = returns_of("cartpole", "in_turn", "this process, torch")
    assert found[0] == in_turn[0]
    assert len(found) == len(in_turn)
    assert found != in_turn
    with_worker = returns_of("cartpole", "overlapped", "sampling process and worker, small policy")
    assert with_worker == found


# ---------------------------------------------------------------------- the peer written by hand


@pytest.mark.parametrize("env", ["CartPole-v1", "HalfCheetah-v5"])
def test_our_update_is_that_of_the_peer_written_by_hand(tiny, env):
    from benchmarks.end_to_end.cleanrl_style import Trainer
    from benchmarks.end_to_end.ours import make_agent, make_ppo
    from parllel import Seeds
    from parllel.cages import Spaces
    from parllel.torch.algos.ppo_inputs import PpoInputs

    continuous = env == "HalfCheetah-v5"
    settings = replace(tiny, env=env, normalize=continuous, initial_log_std=-0.5)
    trainer = Trainer(settings)
    try:
        trainer.sample()
        one = trainer.envs.envs[0]
        spaces = Spaces(one.observation_space, one.action_space, env)
    finally:
        trainer.envs.close()
    agent = make_agent(spaces, settings, Seeds(0))
    pairs = list(zip(trunks(agent.model), trunks(trainer.agent), strict=True))
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.copy_(theirs.reshape(mine.shape))
    advantage = trainer.advantages()
    normalized = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    action = trainer.actions.reshape(32, *trainer.actions.shape[2:])
    inputs = PpoInputs(
        agent={"observation": trainer.observations.reshape(32, -1)},
        action=action if continuous else action.long(),
        log_prob=trainer.log_probs.reshape(-1) + 0.1,  # some ratios are clipped
        value=trainer.values.reshape(-1),
        advantage=normalized.reshape(-1),
        return_=(advantage + trainer.values).reshape(-1),
        valid=None,
    )
    algorithm = make_ppo(agent, settings, Seeds(0))
    before = [mine.detach().clone() for mine, _ in pairs]
    for _ in range(3):
        algorithm.update(algorithm.loss(inputs)[0])
        trainer.update(
            inputs.agent["observation"],
            action,
            inputs.log_prob,
            advantage.reshape(-1),
            inputs.return_,
        )
    for (mine, theirs), start in zip(pairs, before, strict=True):
        assert not torch.equal(mine, start)
        torch.testing.assert_close(mine, theirs.reshape(mine.shape), rtol=1e-4, atol=2e-6)


def trunks(module):
    """Return the parameters, those of the policy first, in the order of layers."""
    if hasattr(module, "policy"):
        policy, critic, log_std = (
            module.policy,
            module.critic,
            getattr(module.head, "log_std", None),
        )
    else:
        policy, critic, log_std = module.actor, module.critic, module.log_std
    return [*policy.parameters(), *critic.parameters(), *([] if log_std is None else [log_std])]


def test_the_peers_rewards_are_divided_by_the_deviation_of_returns(tiny):
    from benchmarks.end_to_end.cleanrl_style import Normalizer

    normalizer, rng = Normalizer((3,), 4, 0.9), np.random.default_rng(0)
    rewards, done = rng.normal(1, 2, (50, 4)), rng.random((50, 4)) < 0.1
    found = np.array([normalizer.reward(*row) for row in zip(rewards, done, strict=True)])
    returns, running = [], np.zeros(4)
    for row, ended in zip(rewards, done, strict=True):
        running = 0.9 * running + row
        returns.append(running.copy())
        running = np.where(ended, 0, running)
    for t in (1, 20, 49):
        expected = rewards[t] / np.std(returns[: t + 1])
        # The statistics begin as if a ten thousandth of a value had been seen.
        np.testing.assert_allclose(found[t], np.clip(expected, -10, 10), rtol=1e-3)
    observations = rng.normal(5, 3, (200, 4, 3))
    *_, last = [normalizer.observation(row) for row in observations]
    flat = observations.reshape(-1, 3)
    expected = (observations[-1] - flat.mean(0)) / flat.std(0)
    np.testing.assert_allclose(last, expected, atol=1e-3)


def test_peers_advantages_are_sums_of_discounted_errors(tiny):
    from benchmarks.end_to_end.cleanrl_style import Trainer

    trainer = Trainer(tiny)
    try:
        for _ in range(4):  # until episodes end within the batch
            trainer.sample()
    finally:
        trainer.envs.close()
    done = np.vstack([trainer.dones.numpy(), trainer.next_done.numpy()[None]])
    assert 0 < done[1:].sum() < done[1:].size
    with torch.no_grad():
        last = trainer.agent(trainer.next_observation)[3].numpy()
    value = np.vstack([trainer.values.numpy(), last[None]]).astype(float)
    reward, expected = trainer.rewards.numpy(), np.zeros((8, 4))
    for b in range(4):
        for t in range(8):
            weight = 1.0
            for k in range(t, 8):  # forwards, until the episode or the batch ends
                going_on = 1 - done[k + 1, b]
                error = reward[k, b] + 0.99 * value[k + 1, b] * going_on - value[k, b]
                expected[t, b] += weight * error
                weight *= 0.99 * 0.95 * going_on
    np.testing.assert_allclose(trainer.advantages().numpy(), expected, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------- processes


def test_a_silent_process_and_what_it_started_are_ended():
    from benchmarks.harness.child import Child, ChildError

    script = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with Child([sys.executable, "-c", script]) as process:
        lines = process.lines(20.0)
        child = int(next(lines))
        assert Path(f"/proc/{child}").exists()
        with pytest.raises(ChildError, match=r"no answer within 0\.2 s"):
            next(process.lines(0.2))
    deadline = time.monotonic() + 30
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def stand_in(tmp_path, script):
    """Return something that can be started like an interpreter."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


BATCH = '{"event": "batch", "sampling_s": 0.25, "learning_s": 0.75, "returns": [9.0]}'


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (f"echo '{BATCH}'; echo broken >&2; exit 3", r"expected 2 batches and an end, got 1"),
        (f"echo '{BATCH}'; echo '{{\"event\": \"end\"}}'", r"expected 2 batches and an end, got 1"),
        ("echo hello", r"in_turn \(small policy.*\): Expecting value"),
    ],
)
def test_a_training_that_ends_badly_is_an_error_with_its_messages(
    tmp_path, tiny, capfd, script, message
):
    from benchmarks.end_to_end.sides import IN_TURN
    from benchmarks.end_to_end.training import TrainingError, train

    with pytest.raises(TrainingError, match=message):
        train(stand_in(tmp_path, script), IN_TURN, IN_TURN.variants[0], tiny)
    if "broken" in script:
        assert "broken" in capfd.readouterr().err


def test_a_rate_leaves_the_first_batch_out(tmp_path, tiny):
    from benchmarks.end_to_end.report import summary
    from benchmarks.end_to_end.sides import IN_TURN
    from benchmarks.end_to_end.training import train

    ready = '{"event": "ready", "libraries": {"torch": "1"}}'
    slow = BATCH.replace("0.25", "99")
    script = "\n".join(f"echo '{line}'" for line in (ready, slow, BATCH, '{"event": "end"}'))
    training = train(stand_in(tmp_path, script), IN_TURN, IN_TURN.variants[0], tiny)
    assert training.steps_per_second == 32
    assert training.libraries == {"torch": "1"}
    figures = summary(training)
    assert (figures["sampling_ms"], figures["learning_ms"]) == (250, 750)
    assert figures["first_batch_s"] == 99.75
    assert figures["curve"] == [[64, 9.0]]


def test_a_side_without_its_python_is_left_out_with_the_reason(monkeypatch, tmp_path):
    from benchmarks.end_to_end.__main__ import enter
    from benchmarks.end_to_end.sides import Side, Variant
    from benchmarks.peers import venvs

    monkeypatch.setattr(venvs, "FOLDER", tmp_path / "venvs")
    recipes = {"a": venvs.Recipe((), python="2.1"), "b": venvs.Recipe(())}
    monkeypatch.setattr(venvs, "RECIPES", recipes)
    find_python = venvs.find_python
    failing = stand_in(tmp_path, "exit 1")
    monkeypatch.setattr(venvs, "find_python", lambda v: find_python(v) if v else failing)
    variants = (Variant("only", 1, {}),)
    absent = Side("absent", "A", "none", "a", variants)
    broken = Side("broken", "B", "none", "b", variants)
    here = Side("here", "H", "none", None, variants)
    left_out = {}
    entrants = enter([absent, broken, here], left_out)
    assert [entrant.side for entrant in entrants] == [here]
    assert entrants[0].python == sys.executable
    assert left_out == {
        "absent": "needs Python 2.1, which is not there",
        "broken": "b: installing it failed, see the messages of pip",
    }


def test_calibration_takes_the_first_setting_that_no_other_clearly_exceeds(monkeypatch, tiny):
    from benchmarks.end_to_end import __main__ as driver
    from benchmarks.end_to_end.sides import Side, Variant
    from benchmarks.end_to_end.training import TrainingError

    rates = {
        "lucky": [90, 1, 2],
        "steady": [30, 20, 40],
        "hardly faster": [31, 31, 31],
        "fails": [None] * 3,
    }
    monkeypatch.setattr(driver, "CALIBRATION_ROUNDS", 3)
    turns = []

    class Trained:
        def __init__(self, rate):
            self.steps_per_second = rate

    def train(python, side, variant, settings, *, line_s):
        turns.append(variant.name)
        rate = rates[variant.name][turns.count(variant.name) - 1]
        if rate is None:
            raise TrainingError("no")
        return Trained(rate)

    monkeypatch.setattr(driver, "train", train)
    variants = tuple(Variant(name, 1, {}) for name in rates)
    entrant = driver.Entrant(Side("s", "S", "none", None, variants), "python", variants[0])
    driver.calibrate(entrant, tiny, 1.0)
    assert entrant.variant.name == "steady"
    assert statistics.median(entrant.calibration["steady"]) == 30
    assert turns == list(rates) * 3  # in turn, so that all meet the same machine
