"""Agents never see what a schema hides, wherever they act; the game and the replay have it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import secrets_game
from foreign_protobuf import foreign_server
from secrets_game import AGENT, OBSERVATION, SPECIFICATION, fields
from serving import served_here

from parllel.distributed.remote import Game, make, register
from parllel.distributed.remote.games.specification import Specification


class Secrets(Game):
    specification = SPECIFICATION
    agents = {"shows": lambda observation: json.dumps(observation, sort_keys=True)}

    def start(self, position):
        self._write(position)

    def step(self, position):
        for seat in position.seats:
            assert seat.observation["secret"] >= 100  # the game has it
        self._write(position)
        if position.step >= 3:
            position.end()

    def _write(self, position):
        for number, seat in enumerate(position.seats):
            own, shared = fields(number, position.step)
            seat.observation.update(own)
            if number == 0:
                position.shared.update(shared)


register("secrets", Secrets)


def seen(env, number=0):
    """Return what an agent was shown in each step, which it had for its action."""
    return [json.loads(row[number]["action"]) for row in env.steps[1:]]


def shows(observation):
    return json.dumps(observation, sort_keys=True)


def expected(number, step):
    """Return what a seat may see, by hand."""
    own, shared = 10 * step + number, 10 * step
    return {
        "mine": own,
        "open": own,
        "hidden": own,
        "named": {"hidden": own},
        "step": step,
        "table": shared,
        "board": {"seen": shared},
        "hand": {"seen": own, "deep": {"seen": own}},
    }


def paths(value, path=""):
    """Return the paths of all fields."""
    if not isinstance(value, dict):
        return {path}
    return {inner for name, part in value.items() for inner in paths(part, f"{path}.{name}")}


def check(env):
    for number in (0, 1):
        for step, observation in enumerate(seen(env, number)):
            assert observation.pop("remainingOverageTime") > 0
            assert observation == expected(number, step)
    assert len(env.steps) == 4


@pytest.mark.parametrize("kind", ["builtin", "callable", "source", "file"])
def test_no_agent_sees_what_is_hidden(tmp_path, kind):
    file = tmp_path / "agent.py"
    file.write_text(AGENT)
    agent = {"builtin": "shows", "callable": shows, "source": AGENT, "file": str(file)}[kind]
    with make("secrets") as env:
        env.run([agent, agent])
        check(env)


def test_no_agent_behind_a_url_is_sent_what_is_hidden(tmp_path):
    file = tmp_path / "agent.py"
    file.write_text(AGENT)
    with (
        served_here(agent=file, environment="secrets") as url,
        foreign_server(lambda observation: {"action": shows(observation)}) as foreign,
        make("secrets") as env,
    ):
        env.run([url, {"type": "proto", "url": foreign}])
        check(env)


def test_the_replay_has_all_and_an_episode_goes_on_from_it():
    with make("secrets") as env:
        env.run(["shows", "shows"])
        replay = json.loads(env.render("json"))
    for step, row in enumerate(replay["steps"]):
        for number, state in enumerate(row):
            own, shared = fields(number, step)
            assert own.items() <= state["observation"].items()
            assert (number == 0) == (shared.items() <= state["observation"].items())
    with make("secrets", steps=replay["steps"][:3]) as env:
        env.run(["shows", "shows"])
        check(env)


def test_what_an_agent_returned_of_it_is_its_own_copy():
    def changes(observation):
        observation["hand"]["seen"] = -1
        return ""

    with make("secrets") as env:
        env.run([changes, "shows"])
        assert env.steps[-1][0]["observation"]["hand"]["seen"] != -1
        assert env.steps[-1][0]["observation"]["hand"]["kept"] == fields(0, 3)[0]["hand"]["kept"]


def test_the_package_shows_and_keeps_the_same(kaggle_python, tmp_path):
    file, out = tmp_path / "agent.py", tmp_path / "steps.json"
    file.write_text(AGENT)
    program = Path(secrets_game.__file__)
    command = [kaggle_python, program, out, file, file]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    theirs = json.loads(out.read_text())
    for row in theirs[2:]:
        for number, state in enumerate(row):
            observation = json.loads(state["action"])
            assert observation.pop("remainingOverageTime") > 0
            # It hides nothing inside of what is shared; here that is hidden too.
            assert observation["board"].pop("kept") >= 0
            assert paths(observation) == paths(expected(number, 1))
            assert state["observation"]["secret"] > 100
            assert ("deck" in state["observation"]) == (number == 0)


ITEMS = {"type": "array", "items": {"type": "object", "properties": {"kept": {"hidden": True}}}}


@pytest.mark.parametrize(
    ("part", "schema", "said"),
    [
        ("observation", {"x": ITEMS}, r"observation\.x\.items\.properties\.kept: hidden"),
        (
            "observation",
            {"x": {"additionalProperties": {"hidden": True}}},
            r"observation\.x\.additionalProperties: hidden",
        ),
        (
            "observation",
            {"x": {"patternProperties": {"a": {"hidden": True}}}},
            r"observation\.x\.patternProperties\.a: hidden",
        ),
        (
            "observation",
            {"x": {"anyOf": [{"properties": {"a": {"hidden": True}}}]}},
            r"observation\.x\.anyOf\[0\]\.properties\.a: hidden",
        ),
        ("observation", {"x": {"hidden": 1}}, r"observation\.x\.hidden: expected true or false"),
        (
            "observation",
            {"x": {"hidden": "yes"}},
            r"observation\.x\.hidden: expected true or false",
        ),
        ("observation", {"x": {"shared": 1}}, r"observation\.x\.shared: expected true or false"),
        (
            "observation",
            {"x": {"properties": {"y": {"shared": True}}}},
            r"observation\.x\.properties\.y: shared",
        ),
        ("observation", {"step": {"hidden": True}}, r"observation\.step: hidden"),
        (
            "observation",
            {"remainingOverageTime": {"hidden": True}},
            r"observation\.remainingOverageTime: hidden",
        ),
        ("configuration", {"x": {"hidden": True}}, r"configuration\.x: hidden"),
        (
            "configuration",
            {"x": {"properties": {"y": {"hidden": True}}}},
            r"x\.properties\.y: hidden",
        ),
        ("action", {"hidden": True}, "action: hidden"),
        ("reward", {"hidden": True}, "reward: hidden"),
        ("info", {"x": {"hidden": True}}, r"info\.x: hidden"),
        ("status", {"hidden": True}, "status: hidden"),
    ],
)
def test_what_cannot_be_hidden_is_refused(part, schema, said):
    with pytest.raises(ValueError, match=rf"specification of secrets: .*{said}"):
        Specification({**SPECIFICATION, part: schema})


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [{"hidden": True}], "default": {"hidden": True}},
        {"const": {"shared": 1}, "default": {"shared": 1}},
        {"examples": [{"hidden": 3}], "default": 1},
        {"properties": {"hidden": {"type": "integer"}, "shared": {"type": "integer"}}},
        {"items": {"hidden": False}},
    ],
)
def test_values_and_names_are_no_marks(schema):
    made = Specification({**SPECIFICATION, "observation": {**OBSERVATION, "x": schema}})
    assert "x" not in made.hidden
