from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

# A limit for what hangs: a machine that does much else takes its time.
pytestmark = pytest.mark.timeout(180)

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


def test_a_quick_run_trains_and_compares(tmp_path):
    output = tmp_path / "new" / "figures.json"
    options = ["--quick", "--seeds", 1, "--steps", 6144, "--sides", "ours", "cleanrl_style"]
    ran = run(*options, "--output", output)
    assert ran.returncode == 0, ran.stderr
    report = json.loads(output.read_text())
    assert report["settings"]["n_batches"] == 3
    assert report["settings"]["quick"] is True
    assert report["left_out"] == []
    ours, peer = (report["sides"][name] for name in ("ours", "cleanrl_style"))
    (mine,), (theirs,) = ours["trainings"], peer["trainings"]
    for training in (mine, theirs):
        assert training["sampling_ms"] > 0
        assert training["learning_ms"] > 0
        ((steps, height),) = training["curve"]
        assert steps == 6144
        assert 10 < height < 60  # a policy that has hardly learnt
    assert "against_ours" not in ours
    against = peer["against_ours"]
    expected = mine["steps_per_second"] / theirs["steps_per_second"]
    faster = against["times_faster"]
    assert faster["median"] == faster["low"] == pytest.approx(expected, rel=1e-3)
    assert faster["met"] == (faster["low"] >= 2.5)
    assert against["learning_curves"]["p_value"] == 1.0
    assert peer["title"] in ran.stdout
    assert output.with_suffix(".png").stat().st_size > 5000
    assert str(ROOT) not in output.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sides", "ours", "sb4"], "expected some of ours, sb3, cleanrl, cleanrl_style, got sb4"),
        (["--steps", "100"], "--steps: expected steps for two batches, got 100"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, message):
    ran = run(*options, "--output", tmp_path / "none.json")
    assert ran.returncode == 2
    assert message in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_settings_travel_as_json(tiny):
    assert type(tiny).from_json(tiny.to_json()) == tiny
    assert tiny.n_batches == 2
    assert type(tiny)(n_steps=300_000).n_batches == 146
    assert type(tiny)().n_batches == 150


@pytest.fixture(scope="module")
def train_ours():
    """Return a function that gives the returns of each batch under a setting of ours."""
    from benchmarks.end_to_end.settings import Settings
    from benchmarks.end_to_end.sides import OURS
    from benchmarks.end_to_end.training import train

    settings = Settings(n_steps=1536, T=64, B=8, seed=3)

    def returns(variant):
        return train(sys.executable, OURS, variant, settings, line_s=45.0).returns

    return returns


@pytest.fixture(scope="module")
def plain_returns(train_ours):
    from benchmarks.end_to_end.sides import OURS

    (plain,) = [variant for variant in OURS.variants if not variant.options]
    return train_ours(plain)


@pytest.mark.parametrize("number", [0, 5])
def test_every_setting_of_ours_learns_the_same(train_ours, plain_returns, number):
    """Where environments are stepped and who computes the policy changes no episode."""
    from benchmarks.end_to_end.sides import OURS

    assert OURS.variants[number].options
    assert sum(map(len, plain_returns)) > 20
    assert train_ours(OURS.variants[number]) == plain_returns


# ---------------------------------------------------------------------- the peer written by hand


def test_our_update_is_that_of_the_peer_written_by_hand(tiny):
    from benchmarks.end_to_end.cleanrl_style import Trainer
    from benchmarks.end_to_end.ours import make_ppo
    from parllel import Seeds
    from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel
    from parllel.torch.algos.ppo_inputs import PpoInputs

    trainer = Trainer(tiny)
    try:
        trainer.sample()
    finally:
        trainer.envs.close()
    model = PgModel((4,), CategoricalHead(2), (8, 8), seed=0)
    pairs = list(zip(trunks(model), trunks(trainer.agent), strict=True))
    with torch.no_grad():
        for mine, theirs in pairs:
            mine.copy_(theirs)
    advantage = trainer.advantages()
    normalized = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    inputs = PpoInputs(
        agent={"observation": trainer.observations.reshape(32, 4)},
        action=trainer.actions.reshape(-1).long(),
        log_prob=trainer.log_probs.reshape(-1) + 0.1,  # some ratios are clipped
        value=trainer.values.reshape(-1),
        advantage=normalized.reshape(-1),
        return_=(advantage + trainer.values).reshape(-1),
        valid=None,
    )
    algorithm = make_ppo(CategoricalPgAgent(model, 2, seed=0), tiny, Seeds(0))
    before = [mine.detach().clone() for mine, _ in pairs]
    for _ in range(3):
        algorithm.update(algorithm.loss(inputs)[0])
        trainer.update(
            inputs.agent["observation"],
            trainer.actions.reshape(-1),
            inputs.log_prob,
            advantage.reshape(-1),
            inputs.return_,
        )
    for (mine, theirs), start in zip(pairs, before, strict=True):
        assert not torch.equal(mine, start)
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=2e-6)


def trunks(module):
    """Return the parameters, those of the policy first, in the order of layers."""
    policy, critic = (
        (module.policy, module.critic)
        if hasattr(module, "policy")
        else (module.actor, module.critic)
    )
    return [*policy.parameters(), *critic.parameters()]


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
        ("echo hello", r"ours \(small policy.*\): Expecting value"),
    ],
)
def test_a_training_that_ends_badly_is_an_error_with_its_messages(
    tmp_path, tiny, capfd, script, message
):
    from benchmarks.end_to_end.sides import OURS
    from benchmarks.end_to_end.training import TrainingError, train

    with pytest.raises(TrainingError, match=message):
        train(stand_in(tmp_path, script), OURS, OURS.variants[0], tiny)
    if "broken" in script:
        assert "broken" in capfd.readouterr().err


def test_a_rate_leaves_the_first_batch_out(tmp_path, tiny):
    from benchmarks.end_to_end.report import summary
    from benchmarks.end_to_end.sides import OURS
    from benchmarks.end_to_end.training import train

    ready = '{"event": "ready", "libraries": {"torch": "1"}}'
    slow = BATCH.replace("0.25", "99")
    script = "\n".join(f"echo '{line}'" for line in (ready, slow, BATCH, '{"event": "end"}'))
    training = train(stand_in(tmp_path, script), OURS, OURS.variants[0], tiny)
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
    entrants, left_out = enter([absent, broken, here])
    assert [entrant.side for entrant in entrants] == [here]
    assert entrants[0].python == sys.executable
    assert left_out == [
        {"name": "absent", "why": "needs Python 2.1, which is not there"},
        {"name": "broken", "why": "b: installing it failed, see the messages of pip"},
    ]


def test_calibration_takes_the_setting_with_the_greatest_median(monkeypatch, tiny):
    from benchmarks.end_to_end import __main__ as driver
    from benchmarks.end_to_end.sides import Side, Variant
    from benchmarks.end_to_end.training import TrainingError

    rates = {"lucky": [90, 1, 2], "steady": [30, 20, 40], "fails": [None] * 3}
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
