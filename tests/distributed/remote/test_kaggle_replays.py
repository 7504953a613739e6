"""Replays of rps and connectx are those of kaggle-environments, for the same agents."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from kaggle_episodes import CASES, REACTING, TRAINED, agent, seen, trained

from parllel.distributed.remote import make

SCRIPT = Path(__file__).with_name("kaggle_episodes.py")


@pytest.fixture(scope="module")
def kaggle(kaggle_python):
    done = subprocess.run(
        [kaggle_python, SCRIPT], capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout.splitlines()[-1])


def observations(steps):
    """Return what agents saw, but for how long they took."""
    return [
        [{k: v for k, v in s["observation"].items() if k != "remainingOverageTime"} for s in row]
        for row in steps
    ]


@pytest.mark.parametrize("title", CASES)
@pytest.mark.few(10)
def test_episodes_are_equal(kaggle, title):
    name, configuration, agents = CASES[title]
    with make(name, configuration) as env:
        env.run([agent(given) for given in agents])
        replay = env.to_json()
    theirs = kaggle["played"][title]
    assert seen(replay["steps"]) == seen(theirs["steps"])
    assert observations(replay["steps"]) == observations(theirs["steps"])
    assert replay["rewards"] == theirs["rewards"]
    assert replay["statuses"] == theirs["statuses"]
    assert sorted(replay) == sorted(theirs)


def without_time(seen_):
    """Return what a trained agent saw, but for how long the others took."""
    if isinstance(seen_, dict):
        return {name: value for name, value in seen_.items() if name != "remainingOverageTime"}
    return [without_time(part) if isinstance(part, (dict, list)) else part for part in seen_]


@pytest.mark.parametrize("title", TRAINED)
def test_a_trained_agent_sees_the_same(kaggle, title):
    made = []

    def make_closed_later(name, configuration):
        made.append(make(name, configuration))
        return made[0]

    ours = trained(make_closed_later, TRAINED[title])
    made[0].close()
    assert without_time(ours) == without_time(kaggle["learned"][title])


@pytest.mark.parametrize("title", ["rps", "rps, a float", "connectx, no such column"])
def test_their_replays_can_be_looked_at(kaggle, title):
    theirs = kaggle["played"][title]
    given = {part: theirs[part] for part in ("configuration", "info", "steps")}
    with make(theirs["name"], **given) as env:
        assert env.done
        assert env.steps == theirs["steps"]
        assert env.render("html").startswith("<!DOCTYPE html>")


def test_an_error_in_rps_is_an_error():
    """kaggle-environments calls it INVALID there, and ERROR in connectx."""
    with make("rps", {"episodeSteps": 6}) as env:
        steps = env.run([agent([1, "raise"]), "rock"])
    assert seen(steps)[-1] == [[None, None, "ERROR"], [0, 1, "DONE"]]


@pytest.mark.parametrize("signs", [3, 5])
@pytest.mark.parametrize("name", REACTING)
def test_built_in_agents_answer_alike(kaggle, name, signs):
    steps = kaggle["reactions"][f"{name} {signs}"]
    with make("rps", {"signs": signs}) as env:
        act = env.agents[name]
        for number in range(39):
            state = steps[number][0]
            action = act(state["observation"], env.configuration)
            theirs = steps[number + 1][0]["action"]
            if number == 0:
                if name == "counter_reactionary":
                    act._last = theirs  # the first one is drawn
                continue
            assert action == theirs


def test_the_specification_names_what_theirs_does(kaggle):
    for theirs in kaggle["specifications"]:
        with make(theirs["name"]) as env:
            ours = env.specification
        for part in ("version", "title", "agents"):
            assert ours[part] == theirs[part]
        for part in ("configuration", "observation"):
            for field, schema in theirs[part].items():
                # An obsolete copy of actTimeout.
                if field != "timeout":
                    assert ours[part][field].get("default") == schema.get("default"), field
                    assert ours[part][field].get("type") == schema.get("type"), field
