from __future__ import annotations

import json
import re

import numpy as np
import pytest


def returns_of(output):
    return [
        float(found) for found in re.findall(r"^seed \d+: return (\S+) in \d+ steps$", output, re.M)
    ]


def test_the_policy_of_a_run_in_its_own_environment(call, run):
    status, output, errors = call("play", run, "--seeds", "0-4")
    assert (status, errors) == (0, "")
    returns = returns_of(output)
    assert len(returns) == 5
    error = np.std(returns, ddof=1) / np.sqrt(5)
    last = f"mean return {np.mean(returns):.2f} ± {error:.2f} (standard error) of 5 episodes"
    assert output.splitlines()[-1] == last


def test_random_actions_in_any_environment(call):
    def play(seeds):
        return returns_of(call("play", "random", "--env", "CartPole-v1", "--seeds", seeds)[1])

    assert play("0-3") == play("0,1,2-3")
    assert play("2") == play("0-3")[2:3]


def test_one_object_per_line(call):
    _, output, _ = call("play", "noop", "--env", "Pendulum-v1", "--seeds", "5,7", "--json")
    *episodes, summary = [json.loads(line) for line in output.splitlines()]
    assert [one["seed"] for one in episodes] == [5, 7]
    assert all(one["truncated"] and one["length"] == 200 for one in episodes)
    assert summary["mean"] == pytest.approx(np.mean([one["return"] for one in episodes]))
    assert summary["episodes"] == 2
    _, output, _ = call("play", "noop", "--env", "Pendulum-v1", "--seeds", "5", "--json")
    assert json.loads(output.splitlines()[-1])["standard_error"] is None


def test_a_file_is_executed_wherever_it_is(call, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for place in (here, tmp_path):
        (place / f"{place.name}_agent.py").write_text("def left(seen):\n    return 0\n")
    arguments = ("--env", "CartPole-v1", "--seeds", "0-1")
    _, output, _ = call("play", "here_agent.py:left", *arguments)
    assert all(8 <= return_ <= 11 for return_ in returns_of(output))
    assert call("play", f"../{tmp_path.name}_agent.py", *arguments)[1] == output


def test_what_cannot_be_played(mistake):
    assert "random: requires --env, because only a run records its environments" in mistake(
        "play", "random"
    )
    assert "nonsense" in mistake("play", "nonsense", "--env", "CartPole-v1")
    said = mistake("play", "random", "--env", "None-v1")
    assert "environment 'None-v1': Environment `None` doesn't exist" in said
    for seeds in ("", "3-1", "a", "1-", "1,,2"):
        said = mistake("play", "random", "--env", "CartPole-v1", "--seeds", seeds)
        assert "--seeds: expected seeds such as 0-99" in said
    said = mistake("play", "random", "--env", "CartPole-v1", "--seeds", "0-9,10-99999999999")
    assert "--seeds: expected at most 1,000,000 seeds" in said
