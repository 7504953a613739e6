"""A folder for the Hugging Face Hub: its card is valid, its numbers are the run's, and its code runs."""

from __future__ import annotations

import csv
import json
import re
import sys

import numpy as np
import pytest

from parllel.policies import load_policy
from parllel.torch import export_folder
from parllel.torch.exports.hub_folder import evaluation_at
from parllel.torch.exports.model_card import model_card

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def folder(run_of, tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "lstm"
    with load_policy(run_of("lstm")) as policy:
        export_folder(policy, path, run=run_of("lstm"), environment="Random-lstm-v0")
    return path


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def test_the_hub_reads_the_card(folder):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard.load(folder / "README.md")
    assert card.data.library_name == "parllel"
    assert card.data.pipeline_tag == "reinforcement-learning"
    assert {"reinforcement-learning", "Random-lstm-v0", "RecurrentPgAgent"} <= set(card.data.tags)
    assert card.data.model_name == "lstm"
    (result,) = card.data.eval_results
    assert result.task_type == "reinforcement-learning"
    assert result.dataset_type == result.dataset_name == "Random-lstm-v0"
    assert result.metric_type == "mean_reward"
    # Written anew by the Hub's own library it says the same.
    again = hub.ModelCard(str(card))
    assert again.data.to_dict() == card.data.to_dict()


def test_the_numbers_are_those_of_the_run(folder, run_of):
    config = config_of(folder)
    with (run_of("lstm") / "progress.csv").open(newline="") as file:
        row = list(csv.DictReader(file))[-1]
    assert row["step"] == "60" == str(config["policy"]["elapsed_steps"])
    expected = {
        name.removeprefix("evaluation/"): float(cell)
        for name, cell in row.items()
        if name.startswith("evaluation/")
    }
    assert config["evaluation"] == expected
    assert config["config"] == json.loads((run_of("lstm") / "config.json").read_text())
    versions = json.loads((run_of("lstm") / "versions.json").read_text())
    # A command line tells folders of the machine.
    del versions["command"], versions["system"]
    assert config["versions"] == versions


def test_nothing_tells_of_the_machine(folder, run_of):
    for name in ("README.md", "config.json"):
        text = (folder / name).read_text()
        assert str(run_of("lstm").parent) not in text
        assert sys.executable not in text
        assert "pytest" not in text


def row_of(card, quantity):
    """Return a row of the table of the evaluation, by the names of its columns."""
    lines = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("|")]
    header = next(line for line in lines if line[0] == "of episodes")
    return dict(zip(header, next(line for line in lines if line[0] == quantity), strict=True))


def test_the_card_has_no_number_of_its_own(folder):
    config = config_of(folder)
    card = (folder / "README.md").read_text()
    assert card == model_card(config)
    assert 'value: "5.00 +/- 0.00"' in card
    config["evaluation"]["return/mean"] = 1234.5
    config["evaluation"]["return/std"] = 6.75
    config["policy"]["elapsed_steps"] = 987654
    card = model_card(config)
    assert 'value: "1234.50 +/- 6.75"' in card
    assert {"mean": "1234.5", "std": "6.75"}.items() <= row_of(card, "return").items()
    assert "987,654 environment\nsteps" in card or "987,654 environment steps" in card


def test_a_checkpoint_without_an_evaluation_has_no_result(folder):
    hub = pytest.importorskip("huggingface_hub")
    config = {**config_of(folder), "evaluation": None}
    card = hub.ModelCard(model_card(config))
    assert card.data.eval_results is None
    assert "This checkpoint was not evaluated in training." in card.text


@pytest.mark.parametrize("name", ["a: b", 'with "quotes"', "- dash", "#1", "yes", "ALE/Pong|v5"])
def test_names_may_be_any(folder, name):
    hub = pytest.importorskip("huggingface_hub")
    config = config_of(folder)
    config |= {"name": name, "environment": name, "config": {name: name}}
    card = hub.ModelCard(model_card(config))
    assert card.data.model_name == name
    assert card.data.eval_results[0].dataset_name == name
    assert name in card.data.tags


def test_the_code_of_the_card_runs(folder, run_of, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    monkeypatch.chdir(folder)
    N = 7
    observation = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32)
    names = {"N": N, "observation": observation}
    exec(code, names)
    with load_policy(run_of("lstm")) as policy:
        np.testing.assert_array_equal(names["action"], policy.act(observation, range(N)))
    assert all(leaf.any() for name, leaf in names["state"].items() if "rnn_state" in name)


def test_the_folder_appears_whole_or_not_at_all(run_of, tmp_path, monkeypatch):
    def fail(config):
        raise KeyError("evaluation")

    path = tmp_path / "out"
    with load_policy(run_of("td3")) as policy:
        settings = {"run": run_of("td3"), "environment": "Random"}
        path.mkdir()
        (path / "mine").touch()
        with pytest.raises(ValueError, match="out: expected a new or empty folder"):
            export_folder(policy, path, **settings)
        (path / "mine").unlink()
        with monkeypatch.context() as patch:
            patch.setattr("parllel.torch.exports.hub_folder.model_card", fail)
            with pytest.raises(KeyError, match="evaluation"):
                export_folder(policy, path, **settings)
        assert [file.name for file in tmp_path.iterdir()] == ["out"]
        assert not list(path.iterdir())
        export_folder(policy, path, **settings)
    assert {file.name for file in path.iterdir()} == {
        "README.md",
        "config.json",
        "policy.onnx",
        "policy.pt",
    }


def test_the_last_whole_evaluation_of_a_step_counts(tmp_path):
    table = tmp_path / "progress.csv"
    assert evaluation_at(table, 10) is None
    table.write_text(
        "step,evaluation/return/mean,evaluation/return/std,training/return/mean\n"
        "10,1.5,0.5,9\n20,2.5,,9\n20,3.5,nan,9\n20,,,9\n"
    )
    assert evaluation_at(table, 10) == {"return/mean": 1.5, "return/std": 0.5}
    assert evaluation_at(table, 20) == {"return/mean": 3.5}
    assert evaluation_at(table, 30) is None
