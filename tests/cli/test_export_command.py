from __future__ import annotations

import json

import numpy as np
import pytest
from export_build import build

from parllel.policies import load_policy
from parllel.runners import train

# Imported before any test, as it keeps files open.
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """A finished run of PPO that nobody changes."""
    return train(build, {"seed": 0}, base=tmp_path_factory.mktemp("learned"), name="ppo")[1].path


def test_a_run_becomes_a_file(call, learned, tmp_path):
    path = tmp_path / "policy.onnx"
    status, output, errors = call("export", learned, "--to", path, "--trust")
    assert (status, errors) == (0, "")
    assert output.splitlines() == [
        "policy after 64 environment steps",
        "1,000 random observations: the actions are those of the run",
        "inputs: observation float32 [N, 4]",
        "outputs: action int64 [N]",
        f"The policy is {path} ({path.stat().st_size:,} bytes)",
    ]
    observations = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    (actions,) = onnxruntime.InferenceSession(path).run(None, {"observation": observations})
    with load_policy(learned) as policy:
        np.testing.assert_array_equal(actions, policy.act(observations, range(100)))


def test_a_file_with_parameters(call, learned, tmp_path):
    status, output, _ = call("export", learned, "--to", tmp_path / "p.pt", "--params", "--trust")
    assert status == 0
    assert "outputs: action int64 [N], params float32 [N, 2]\n" in output


def test_the_config_can_be_changed(mistake, learned, tmp_path):
    path = tmp_path / "policy.pt"
    assert "nothing" in mistake("export", learned, "--to", path, "--trust", "nothing=3")


def test_a_run_becomes_a_folder(call, learned, tmp_path):
    status, output, errors = call("export", learned, "--to", f"{tmp_path / 'hub'}/", "--trust")
    assert (status, errors) == (0, "")
    assert output.endswith(f"{tmp_path / 'hub'}; look at its README.md before you upload it\n")
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert (config["name"], config["environment"]) == ("ppo", "CartPole-v1")
    assert config["config"] == {"seed": 0}
    card = (tmp_path / "hub" / "README.md").read_text()
    of_return = next(line for line in card.splitlines() if line.startswith("| return |"))
    assert f"| {config['evaluation']['return/mean']:g} |" in of_return


def test_mistakes_are_told_before_the_run_is_built(mistake, learned, tmp_path, monkeypatch):
    assert "--to: expected a file that ends in .onnx or .pt, or a folder, " in mistake(
        "export", learned, "--to", tmp_path / "policy.zip", "--trust"
    )
    assert f"--to: there is no folder {tmp_path / 'x'}" in mistake(
        "export", learned, "--to", tmp_path / "x" / "policy.pt", "--trust"
    )
    assert "--to: expected a file or folder, got ''" in mistake(
        "export", learned, "--to", "", "--trust"
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    assert "full: expected a new or empty folder" in mistake(
        "export", learned, "--to", f"{tmp_path / 'full'}/", "--trust"
    )
    monkeypatch.chdir(tmp_path)  # away from the script
    assert "give --trust" in mistake("export", learned, "--to", tmp_path / "policy.pt")


def test_an_agent_without_a_module_is_named(mistake, run, tmp_path):
    said = mistake("export", run, "--to", tmp_path / "policy.pt", "--trust")
    assert "expected one agent of parllel.torch, " in said
    assert ".RandomAgent" in said
    assert not list(tmp_path.glob("policy*"))
