"""Experiments that are killed at any moment and resumed are those that were never interrupted."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from left_records import all_records, records, without_times

from parllel.cli import main
from parllel.distributed.operators import (
    Experiment,
    MultiAgentConfig,
    OperatorConfig,
)
from parllel.distributed.operators.experiments.earlier_part import earlier_part
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer
from parllel.errors import WrongStateError
from parllel.runs import RunFolder

FRAIL = Path(__file__).with_name("frail_worker.py")
LAKE = "FrozenLake-v1"
RANDOM = OperatorConfig("baseline", "random", LAKE, policy="random", max_steps=4)
NOOP = OperatorConfig("baseline", "noop", LAKE, policy="noop", max_steps=4)

SCRIPT = f"""
import sys
from parllel.distributed.operators import Experiment, MultiAgentConfig, OperatorConfig

def experiment(url: str, mode: str = "free"):
    settings = {{"model": "any", "base_url": url, "price": {{"prompt": 1, "completion": 2}}}}
    lake = {{"env_id": "{LAKE}", "max_steps": 6}}
    worker = [sys.executable, {str(FRAIL)!r}]
    rps = "pettingzoo/classic/rps_v2"
    players = {{
        f"player_{{i}}": OperatorConfig("baseline", f"player-{{i}}", policy="random") for i in (0, 1)
    }}
    return Experiment(
        "long",
        [
            OperatorConfig("llm", "model", settings=settings, **lake),
            OperatorConfig("llm", "poor", settings=settings | {{"token_budget": 4000}}, **lake),
            OperatorConfig("baseline", "random", policy="random", **lake),
            OperatorConfig("program", "dies", "five", worker=[*worker, "die=2", "slow=0.01"]),
            OperatorConfig("program", "gives_up", "five", worker=[*worker, "die=1"]),
            MultiAgentConfig("duel", rps, players, seats="rotate", max_steps=6),
        ],
        seeds=[1, 2, 3, 2, 4, 5, 6, 1, 7, 8], mode=mode, restarts=2, pace_s=0.01,
        budget={{"tokens": 10_000_000, "cost": 1000}},
    )
"""


def said_by(messages):
    """Answer as a model does that understands no question whose position is odd; the same to the same."""
    generator = random.Random(json.dumps(messages))
    return generator.choice(["Action: 1", "Action: 2", "left", "hm"])


def lake_model(name, server, **settings):
    settings = {"model": "any", "base_url": server.base_url, "attempts": 0, **settings}
    return OperatorConfig("llm", name, LAKE, settings=settings, max_steps=4)


@pytest.fixture
def model():
    with ScriptedServer([Rule(said_by)]) as server:
        yield server


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "long.py"
    path.write_text(SCRIPT)
    return path


def command_of(script, url, *more):
    words = ["operators", "run", str(script), "--set", f"url={url}", "--dir", str(script.parent)]
    return [sys.executable, "-m", "parllel", *words, *more]


def all_of(folder):
    """Return the records and results of an experiment, but for times."""
    outcome = json.loads((folder / "run.json").read_text())["outcome"]
    return {
        **all_records(folder),
        "results": without_times(json.loads((folder / "results.json").read_text())),
        "outcome": {name: outcome[name] for name in ("steps", "episodes", "failed", "stopped_by")},
    }


def n_lines(folder):
    paths = (folder / "telemetry").glob("*.jsonl")
    return sum(path.read_bytes().count(b"\n") for path in paths)


def kill_after(command, folder, lines):
    """Kill a command once the records have grown by so many lines, or more; return whether it had ended."""
    before = n_lines(folder) if folder.exists() else 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 60
        while process.poll() is None and n_lines(folder) < before + lines:
            assert time.monotonic() < end
            time.sleep(0.002)
        has_ended = process.poll() is not None
        process.kill()
        process.communicate(timeout=20)
    return has_ended


@pytest.mark.parametrize(
    ("mode", "seed", "kills"),
    [
        ("free", 1, 3),
        ("lockstep", 2, 2),
        *[
            pytest.param(mode, seed, 6, marks=pytest.mark.soak)
            for mode in ("free", "lockstep")
            for seed in range(3, 9)
        ],
    ],
)
@pytest.mark.few(1)
def test_killed_at_random_moments_it_plays_what_it_would_have(
    model, script, tmp_path, mode, seed, kills
):
    whole = tmp_path / "whole"
    command = command_of(script, model.base_url, "--set", f"mode={mode}")
    done = subprocess.run([*command, "--dir", str(whole)], capture_output=True, timeout=120)
    assert done.returncode == 1, done.stderr  # operators that die
    n_asked = len(model.requests)
    generator = random.Random(seed)
    folder = tmp_path / "long"
    killed = [kill_after(command, folder, generator.randrange(1, 40))]
    resumed = [*command, "--resume", str(folder)]
    for _ in range(1, kills):
        # Half a line, as of a disk that was full for a moment.
        with open(folder / "telemetry" / "long_random_episodes.jsonl", "ab") as file:
            file.write(b'{"run_id": "long_ran')
        killed.append(kill_after(resumed, folder, generator.randrange(1, 40)))
    done = subprocess.run(resumed, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "of 70 episodes were already played" in done.stdout.splitlines()[0]
    assert all_of(folder) == all_of(whole / "long")
    episodes = records(folder, "long_model", "episodes")
    assert [episode["episode"] for episode in episodes] == list(range(10))
    history = json.loads((folder / "run.json").read_text())["history"]
    assert len(history) == kills
    assert not killed[0]  # the first ended within it
    # A worker's own budget is used up where it would have been.
    poor = records(folder, "long_poor", "episodes")
    assert (poor[0]["status"], poor[-1]["status"]) == ("ended", "failed")
    # What was interrupted is paid for again; all that was paid for and written down counts.
    episodes += [episode for episode in poor if "calls" in episode]
    spent = json.loads((folder / "run.json").read_text())["outcome"]["spent"]
    total = sum(episode["calls"] for episode in episodes)
    again = len(model.requests) - n_asked - total
    assert total <= spent["calls"] <= total + again
    assert again <= 2 * 3 * 6 * len(killed)  # at most an episode of each model in each part


def cut_records(folder, run_id, n_done, n_more):
    """Cut the records of an operator to so many episodes, and so many steps of the next one."""
    steps, episodes = (
        folder / "telemetry" / f"{run_id}_{kind}.jsonl" for kind in ("steps", "episodes")
    )
    lines = episodes.read_bytes().splitlines(keepends=True)
    episodes.write_bytes(b"".join(line for line in lines if json.loads(line)["episode"] < n_done))
    lines = steps.read_bytes().splitlines(keepends=True)
    done = [line for line in lines if json.loads(line)["episode"] < n_done]
    more = [line for line in lines if json.loads(line)["episode"] == n_done][:n_more]
    steps.write_bytes(b"".join([*done, *more, b'{"run_id": "h']))


@pytest.mark.parametrize("mode", ["free", pytest.param("lockstep", marks=pytest.mark.soak)])
def test_cut_at_any_record_it_goes_on_as_it_would_have(tmp_path, mode):
    worker = [sys.executable, str(FRAIL)]
    with ScriptedServer([Rule("Action: 1", usage=(8, 2))]) as server:
        players = {
            f"player_{i}": replace(
                lake_model(f"player-{i}", server, token_budget=60), env_id=None, max_steps=None
            )
            for i in range(2)
        }
        operators = [
            lake_model("poor", server, token_budget=90),
            OperatorConfig("program", "dies", "five", worker=[*worker, "die=2"]),
            MultiAgentConfig("duel", "pettingzoo/classic/rps_v2", players, max_steps=2),
        ]
        experiment = Experiment("cut", operators, seeds=[1, 2, 3, 2, 4], mode=mode, restarts=1)
        whole = experiment.run(tmp_path).folder
        poor = records(whole, "cut_poor", "episodes")
        assert [e["status"] for e in poor] == ["ended"] * 2 + ["failed"] * 3
        duel = records(whole, "cut_duel", "episodes")
        assert [e["status"] for e in duel[::2]] == ["ended"] * 3 + ["failed"] * 2
        for number, cuts in enumerate(([0, 0, 0], [1, 2, 3], [2, 1, 4], [5, 3, 2])):
            folder = tmp_path / f"cut-{number}"
            shutil.copytree(whole, folder)
            for name, n_done in zip(("poor", "dies", "duel"), cuts, strict=True):
                cut_records(folder, f"cut_{name}", n_done, n_more=1)
            if number == 1:  # killed between the records of two players
                path = folder / "telemetry" / "cut_duel_episodes.jsonl"
                path.write_bytes(path.read_bytes() + json.dumps(duel[6]).encode() + b"\n")
            experiment.run(tmp_path, resume=folder)
            assert all_of(folder) == all_of(whole), cuts


def test_what_is_finished_is_not_played_again(tmp_path, capsys, monkeypatch):
    experiment = Experiment("short", [RANDOM, NOOP], seeds=[1, 2])
    first = experiment.run(tmp_path)
    files = {p: p.read_bytes() for p in (first.folder / "telemetry").iterdir()}
    said = []
    again = experiment.run(tmp_path, resume=first.folder, say=said.append)
    assert said == ["resumed: 4 of 4 episodes were already played"]
    assert {p: p.read_bytes() for p in (first.folder / "telemetry").iterdir()} == files
    assert (again.folder, again.groups, again.exit_status) == (first.folder, first.groups, 0)
    assert not (tmp_path / "short-2").exists()


def test_other_settings_are_named_and_refused(tmp_path):
    settings = {"model": "any", "base_url": "http://127.0.0.1:9/v1", "temperature": 0.5}
    model = OperatorConfig("llm", "model", LAKE, settings=settings, max_steps=4)
    experiment = Experiment("short", [RANDOM, NOOP], seeds=[1, 2])
    folder = experiment.run(tmp_path).folder

    def files():
        paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
        return {path: path.read_bytes() for path in paths}

    before = files()
    slow = OperatorConfig("baseline", "noop", LAKE, policy="noop", max_steps=5)
    for changed, said in (
        (
            Experiment("short", [RANDOM, NOOP], seeds=[1, 3]),
            r"seeds: \[1, 2\] before, \[1, 3\] now",
        ),
        (Experiment("short", [RANDOM, slow], seeds=[1, 2]), "'noop': max_steps: 4 before, 5 now"),
        (Experiment("short", [RANDOM], seeds=[1, 2]), "operator 'noop': none now"),
        (Experiment("short", [RANDOM, NOOP, model], seeds=[1, 2]), "operator 'model': none before"),
        (Experiment("short", [NOOP, RANDOM], seeds=[1, 2]), "operators: in another order"),
        (Experiment("other", [RANDOM, NOOP], seeds=[1, 2]), "name: 'short' before, 'other' now"),
    ):
        with pytest.raises(ValueError, match=f"cannot be resumed with other settings: .*{said}"):
            changed.run(tmp_path, resume=folder)
    assert files() == before


def test_what_is_no_experiment_is_refused(tmp_path):
    experiment = Experiment("short", [RANDOM], seeds=[1])
    with pytest.raises(FileNotFoundError, match="there is no such folder"):
        experiment.run(tmp_path, resume=tmp_path / "none")
    with pytest.raises(ValueError, match="not the folder of a run"):
        experiment.run(tmp_path, resume=tmp_path)


def test_telemetry_of_other_rounds_is_refused(tmp_path):
    folder = Experiment("short", [RANDOM], seeds=[1, 2]).run(tmp_path).folder
    path = folder / "telemetry" / "short_random_episodes.jsonl"
    with pytest.raises(
        ValueError, match=r"line 1: expected the episode and seed \(0, 5\), got \(0, 1\)"
    ):
        earlier_part(folder / "telemetry", "short_random", [(0, 5, None), (1, 2, None)], 1)
    path.write_text("no record\n" + path.read_text())
    with pytest.raises(ValueError, match=f"{path}: line 1: not a record"):
        Experiment("short", [RANDOM], seeds=[1, 2]).run(tmp_path, resume=folder)


def test_one_that_is_still_played_is_refused(tmp_path):
    experiment = Experiment("short", [RANDOM], seeds=[1])
    folder = experiment.run(tmp_path).folder
    with (
        RunFolder.open(folder).lock(),
        pytest.raises(WrongStateError, match=r"another process .* is using this run"),
    ):
        experiment.run(tmp_path, resume=folder)


def test_a_new_run_says_that_an_earlier_one_can_be_resumed(tmp_path, capsys):
    file = tmp_path / "short.py"
    file.write_text(
        "from parllel.distributed.operators import Experiment, OperatorConfig\n"
        f"random = OperatorConfig('baseline', 'random', {LAKE!r}, policy='random')\n"
        "def experiment(n: int = 2): return Experiment('short', [random], seeds=range(n))\n"
    )
    run = ["operators", "run", str(file), "--dir", str(tmp_path)]
    assert main(run) == 0
    assert "to continue it" not in capsys.readouterr().err  # there is none
    assert main(run) == 0
    assert "to continue it" not in capsys.readouterr().err  # it was finished
    record = tmp_path / "short" / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "outcome": None}))
    assert main([*run, "--set", "n=3"]) == 0
    assert "to continue it" not in capsys.readouterr().err  # another experiment
    assert main(run) == 0
    said = capsys.readouterr().err
    assert f"{tmp_path / 'short'} has 2 episodes of this experiment, which was not finished" in said
    assert main([*run, "--resume", str(tmp_path / "short")]) == 0
    assert "resumed: 2 of 2 episodes were already played" in capsys.readouterr().out


# ---------------------------------------------------------------------- budgets


def calls_of(folder, name):
    return sum(episode["calls"] for episode in records(folder, f"paid_{name}", "episodes"))


def test_a_budget_ends_the_experiment_which_goes_on_with_a_larger_one(tmp_path, model):
    server = model
    one = lake_model("model", server, price={"prompt": 0, "completion": 1e6})
    whole = Experiment("paid", [one, RANDOM], seeds=range(6)).run(tmp_path / "whole")
    budget = {"calls": 7}
    first = Experiment("paid", [one, RANDOM], seeds=range(6), budget=budget).run(tmp_path)
    assert (first.stopped_by, first.exit_status, first.failures) == ("budget", 1, ())
    assert first.notes == ("budget: 7 of 7 calls are used",)
    assert first.spent["calls"] == 7
    model_result, _ = first.groups[0].operators
    assert 0 < model_result.ended < 6
    interrupted = 7 - calls_of(first.folder, "model")
    assert interrupted > 0
    # As much as an uninterrupted one takes, and what was interrupted.
    enough = calls_of(whole.folder, "model") + interrupted
    # One more: once as many are used as may be, the other operator, which asks nobody, is stopped too.
    for calls, stopped_by in ((7, "budget"), (enough + 1, None)):
        budget = {"calls": calls, "tokens": 10**6, "cost": 1e9}
        said = []
        again = Experiment("paid", [one, RANDOM], seeds=range(6), budget=budget)
        result = again.run(tmp_path, resume=first.folder, say=said.append)
        assert result.stopped_by == stopped_by
    assert result.spent["calls"] == enough
    assert (result.groups[0].operators[0].total_tokens, result.exit_status) == (
        whole.groups[0].operators[0].total_tokens,
        whole.exit_status,
    )
    assert all_of(result.folder) == all_of(whole.folder)
    assert [
        entry["changes"]
        for entry in json.loads((result.folder / "run.json").read_text())["history"]
    ] == [{"budget": {"calls": 7, "tokens": 10**6, "cost": 1e9}}, {"budget": budget}]


def test_a_budget_is_that_of_all_operators(tmp_path):
    with ScriptedServer([Rule("Action: 1", usage=(8, 2))]) as server:
        operators = [lake_model(name, server) for name in ("a", "b")]
        result = Experiment("paid", operators, seeds=range(50), budget={"tokens": 100}).run(
            tmp_path
        )
        n_asked = len(server.requests)
    assert result.stopped_by == "budget"
    # Each was in the middle of one decision at most.
    assert 10 <= n_asked <= 11
    assert result.spent == {"tokens": 10 * n_asked, "calls": n_asked, "cost": 0}


def test_a_decision_that_fails_counts_for_the_budget(tmp_path):
    with ScriptedServer([Rule("hm", usage=(8, 2))]) as server:
        operator = lake_model("a", server, unparsed="error")
        experiment = Experiment("paid", [operator], seeds=range(50), budget={"tokens": 50})
        result = experiment.run(tmp_path)
        assert len(server.requests) == 5
    assert (result.stopped_by, result.spent["tokens"]) == ("budget", 50)
    assert result.groups[0].operators[0].failed == 5


def test_a_budget_that_cannot_be_counted_ends_the_experiment(tmp_path):
    with ScriptedServer([Rule("Action: 1", usage=None)]) as server:
        experiment = Experiment(
            "paid", [lake_model("a", server)], seeds=range(50), budget={"tokens": 50}
        )
        result = experiment.run(tmp_path)
        assert len(server.requests) == 1
    assert result.exit_status == 1
    assert result.notes == (
        "budget: a: its worker or server does not count tokens, which it limits",
    )


def test_the_command_takes_a_budget_and_says_how_to_go_on(tmp_path, capsys):
    with ScriptedServer([Rule("Action: 1", usage=(8, 2))]) as server:
        file = tmp_path / "paid.py"
        file.write_text(
            "from parllel.distributed.operators import Experiment, OperatorConfig\n"
            f"settings = {{'model': 'any', 'base_url': {server.base_url!r}}}\n"
            f"model = OperatorConfig('llm', 'model', {LAKE!r}, settings=settings, max_steps=4)\n"
            "experiment = Experiment('paid', [model], seeds=range(3))\n"
        )
        run = ["operators", "run", str(file), "--dir", str(tmp_path)]
        assert main([*run, "--budget", "tokens=20", "--budget", "calls=50"]) == 1
        out, err = capsys.readouterr()
        assert "budget: 20 of 20 tokens are used" in err
        assert "budget: stopped; played: model 0 of 3 episodes, in " in err
        folder = tmp_path / "paid"
        assert f"to continue, use --resume {folder} and a larger --budget" in err
        assert " 0/3 " in out
        assert main([*run, "--budget", "tokens=5000", "--resume", str(folder)]) == 0
        assert "resumed: 0 of 3 episodes were already played" in capsys.readouterr().out
        assert main([*run, "--budget", "tokens=5", "--resume", str(folder)]) == 0  # all is played
        assert main([*run, "--budget", "calls=1.5"]) == 2
        assert (
            "--budget: expected tokens=N, calls=N or cost=X, got 'calls=1.5'"
            in capsys.readouterr().err
        )


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (5, "budget: expected limits for some of tokens, calls, cost, got 5"),
        ({}, "budget: expected limits for some of tokens, calls, cost, got {}"),
        ({"time": 5}, "budget: expected limits for some of tokens, calls, cost, got {'time': 5}"),
        ({"tokens": 0}, "budget: tokens: expected a whole number above 0, got 0"),
        ({"tokens": 1.5}, "budget: tokens: expected a whole number above 0, got 1.5"),
        ({"calls": True}, "budget: calls: expected a whole number above 0, got True"),
        ({"cost": float("inf")}, "budget: cost: expected a number above 0, got inf"),
        ({"cost": 5}, "budget: cost: expected a price in the settings of 'a', got none"),
    ],
)
def test_budgets_that_cannot_be_are_refused(budget, said):
    model = OperatorConfig("llm", "a", LAKE, settings={"model": "any"})
    with pytest.raises((ValueError, TypeError), match=said):
        Experiment("x", [model], seeds=[1], budget=budget)
