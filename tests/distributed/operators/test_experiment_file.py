"""Experiments in files of Python and TOML, and what is wrong with bad ones."""

from __future__ import annotations

import json
import textwrap

import pytest

from parllel.distributed.operators.experiments.experiment_file import (
    experiment_from_json,
    load_experiment,
)

HEAD = """
from contextlib import contextmanager
from pathlib import Path
from parllel.distributed.operators import Experiment, OperatorConfig

def of(episodes, policy="random"):
    config = OperatorConfig("baseline", "only", "CartPole-v1", policy=policy)
    return Experiment("one", [config], seeds=0, episodes=episodes)
"""
TOML = """
name = "one"
seeds = {procedural = 3}
episodes = 2
success = 10
[[operators]]
operator_type = "baseline"
operator_id = "only"
env_id = "CartPole-v1"
policy = "random"
[[operators]]
operator_id = "game"
env_id = "pettingzoo/classic/chess_v6"
[operators.players.player_0]
operator_type = "chess"
operator_id = "white"
policy = "random"
[operators.players.player_1]
operator_type = "chess"
operator_id = "black"
policy = "random"
"""


@pytest.fixture
def file(tmp_path):
    """Write a file and return its path."""
    count = iter(range(100))

    def file(text, suffix=".py"):
        path = tmp_path / f"experiment_{next(count)}{suffix}"
        path.write_text(textwrap.dedent(text))
        return path

    return file


def test_an_experiment_a_function_and_a_context(file, tmp_path):
    with load_experiment(file(f"{HEAD}\nexperiment = of(3)")) as found:
        assert (found.name, len(found.episode_seeds)) == ("one", 3)
    function = file(
        f"{HEAD}\ndef experiment(n: int = 4, policy='noop', m=None): return of(m or n, policy)"
    )
    with load_experiment(function, ["n=7", "policy=random"]) as found:
        assert (len(found.episode_seeds), found.operators[0].policy) == (7, "random")
    with load_experiment(function, ["m=2"]) as found:
        assert (len(found.episode_seeds), found.operators[0].policy) == (2, "noop")
    context = file(
        f"""{HEAD}
@contextmanager
def experiment(where):
    Path(where).write_text("lives")
    try:
        yield of(1)
    finally:
        Path(where).write_text("ended")
"""
    )
    service = tmp_path / "service"
    with load_experiment(context, [f"where={service}"]):
        assert service.read_text() == "lives"
    assert service.read_text() == "ended"


def test_toml_says_the_same_as_json(file):
    with load_experiment(file(TOML, ".toml")) as found:
        values = found.as_json()
    assert values["seeds"] == {"procedural": 3}
    assert [one["operator_id"] for one in values["operators"]] == ["only", "game"]
    assert values["operators"][1]["players"]["player_1"]["operator_type"] == "chess"
    with load_experiment(file(TOML, ".toml"), ["episodes=5", 'seeds={"fixed": 1}']) as changed:
        assert changed.episode_seeds == (1,) * 5
    text = json.dumps(values)
    # What nothing was said of is empty, and reads as that.
    again = experiment_from_json(json.loads(text.replace('"variables": []', '"variables": {}')))
    assert again.as_json() == values


@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        ("experiment = of(", [], "experiment_0.py: cannot be imported: SyntaxError"),
        ("import sys\nsys.exit(3)", [], r"cannot be imported, because it exits \(status 3\)"),
        (
            "",
            [],
            "experiment_0.py: expected 'experiment' to be defined, as an Experiment, or a function",
        ),
        ("experiment = 3", [], "experiment: expected an Experiment, got 3"),
        ("def experiment(): return None", [], "experiment: expected an Experiment, got None"),
        (
            "experiment = of(1)",
            ["n=1"],
            "--set n: expected 'experiment' to be a function with this parameter",
        ),
        ("def experiment(n): return of(n)", [], r"experiment\(\) requires 'n'; use --set n=VALUE"),
        (
            "def experiment(episodes=1): return of(episodes)",
            ["episode=1"],
            r"--set episode: experiment\(\) has no such parameter; did you mean 'episodes'\?",
        ),
        (
            "def experiment(episodes=1): return of(episodes)",
            ["episodes=x"],
            "episodes: expected a whole number, got 'x'",
        ),
        ("experiment = of(1)", ["n"], "--set: expected NAME=VALUE, got 'n'"),
        (
            "experiment = of(0)",
            [],
            "cannot be imported: ValueError: episodes: expected an int of at",
        ),
    ],
    ids=str,
)
def test_bad_scripts(file, text, changes, said):
    path = file(f"{HEAD}\n{text}")
    with pytest.raises((ValueError, TypeError), match=said), load_experiment(path, changes):
        pass


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name =", "name ==", "experiment_0.toml: not valid TOML: "),
        ("episodes =", "episode =", "toml: unknown name 'episode'; did you mean 'episodes'?"),
        ("policy =", "polcy =", "operator 'only': unknown name 'polcy'; did you mean 'policy'?"),
        ('operator_id = "white"\n', "", "operator '?': operator_id: expected a value, got none"),
        ("seeds = {procedural = 3}", "", "toml: seeds: expected a value, got none"),
        (
            "procedural = 3",
            "random = 3",
            "seeds: expected an int, a list, or a table with the key procedural",
        ),
        (
            '"baseline"',
            '"robot"',
            "operator 'only': operator_type: expected one of baseline, chess",
        ),
        (
            '"black"',
            '"white"',
            "both have the operator_id 'white'; give each player a different one",
        ),
        (
            '"black"',
            '"only"',
            "operators: several have the operator_id 'only'; give each a different one",
        ),
    ],
    ids=str,
)
def test_bad_toml(file, old, new, said):
    path = file(TOML.replace(old, new, 1), ".toml")
    with pytest.raises((ValueError, TypeError)) as refused, load_experiment(path):
        pass
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.py", r"none\.py: no such file"),
        ("a.json", r"a\.json: expected a \.py or a \.toml file"),
    ],
)
def test_other_files(tmp_path, name, said):
    with pytest.raises((FileNotFoundError, ValueError), match=said):
        load_experiment(tmp_path / name).__enter__()
