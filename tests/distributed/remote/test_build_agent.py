"""What a specification means, in the order in which it is tried."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from agent_setup import context

from parllel.distributed.remote import Agent, AgentFailure, build_agent
from parllel.distributed.remote.build_agent import kind_of

OBSERVATION = {"step": 3, "remainingOverageTime": 60}


def rock(observation, configuration):
    return 0


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rock").write_text("def agent(): return 'of the file'\n")
    Path("agent.py").write_text("def agent(): return 'of agent.py'\n\ndef other(): return 1\n")
    Path("run").mkdir()
    (Path("run") / "run.json").write_text("{}")
    Path("empty").mkdir()
    Path("folder-of-agent").mkdir()
    (Path("folder-of-agent") / "main.py").write_text("def agent(): return 'of main.py'\n")
    Path("agent.tar.gz").write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"type": "proto", "url": "http://a:1"}, "proto"),
        ({"proto_config": {"url": "http://a:1"}}, "proto"),
        ({"url": "http://a:1"}, "constant"),
        ("rock", "builtin"),  # although there is a file of that name
        (rock, "callable"),
        (functools.partial(rock, 1), "callable"),
        (3, "constant"),
        ([1, 2], "constant"),
        (1.5, "constant"),
        (np.int64(2), "constant"),
        ("http://localhost:1/", "url"),
        ("https://localhost:1/?a[]=b", "url"),
        ("run", "run"),
        ("empty", "run"),
        ("folder-of-agent", "file"),
        ("agent.tar.gz", "archive"),
        ("missing.tar.gz", "file"),
        ("agent.py", "file"),
        (Path("agent.py"), "file"),
        ("agent.py:other", "file"),
        ("missing.py", "file"),
        ("papr", "file"),
        ("folder/agent", "file"),
        ("def agent(o): return 1", "source"),
        ("agent = lambda o: 1", "source"),
        ("def agent(o):\n    return 1\n", "source"),
        ("not Python at all,\nin two lines", "source"),
    ],
)
def test_kinds(files, raw, kind):
    assert kind_of(raw, context({"rock": rock})) == kind


def test_none_and_an_agent_are_not_specifications():
    environment = context()
    with pytest.raises(TypeError, match="agent: expected a specification, got None"):
        kind_of(None, environment)
    with (
        Agent(1, environment) as agent,
        pytest.raises(TypeError, match=r"expected a specification, got Agent\('1'\)"),
    ):
        Agent(agent, environment)


@pytest.mark.parametrize(
    ("raw", "error", "said"),
    [
        (
            {"type": "proto"},
            ValueError,
            'expected a URL in "url", or in the "url" of "proto_config"',
        ),
        ({"proto_config": {}}, ValueError, "got neither"),
        (
            {"url": "http://a:1", "proto_config": {"url": "http://b:1"}},
            ValueError,
            'one URL, got different URLs in "url" and in "proto_config"',
        ),
        ("http://", ValueError, "URL: expected http:// or https:// and a host, got http://"),
        ("http://user:secret@host:port/", ValueError, "got a URL that cannot be parsed"),
        ("http://host/a b", ValueError, "URL: expected printable ASCII"),
        (
            "empty",
            FileNotFoundError,
            "expected a file or the folder of a run, got a folder without",
        ),
        ("missing.py", FileNotFoundError, r"agent 'missing.py': there is no such file, run folder"),
        ("papr", FileNotFoundError, r"built-in agent \(paper, rock\)"),
        ({1, 2}, TypeError, r"agent: expected an action, got \{1, 2\}: expected JSON values"),
        (float("nan"), TypeError, "expected a finite number, got nan"),
    ],
)
def test_refusals(files, raw, error, said):
    with pytest.raises(error, match=said) as raised:
        build_agent(raw, context({"rock": rock, "paper": rock}))
    assert "secret" not in str(raised.value)


def act(raw, **settings):
    with Agent(raw, context({"rock": rock}, **settings)) as agent:
        return agent.act(OBSERVATION)[0]


def test_what_acts_in_this_process():
    assert act("rock") == 0
    assert act(lambda: "none") == "none"
    assert act(lambda observation: observation.step) == 3
    assert act(lambda o, c: c.actTimeout) == 30
    assert act(lambda o, c, more=1: more) == 1
    assert act(lambda *all: len(all)) == 2
    assert act({"move": [1, (2, np.float32(0.5))]}) == {"move": [1, [2, 0.5]]}


@pytest.mark.parametrize(
    "function", [lambda a, b, c: 1, lambda o, *, key: 1], ids=["three", "keyword"]
)
def test_a_function_that_needs_more_is_refused(function):
    with pytest.raises(
        ValueError, match=r"a function of at most two arguments, \(observation, conf"
    ):
        Agent(function, context())


def test_what_acts_in_a_process_of_its_own(files):
    assert act("agent.py") == 1  # the last
    assert act("agent.py:agent") == "of agent.py"
    assert act("./rock") == "of the file"
    assert act("def agent(o, c): return [o.step, c['actTimeout']]") == [3, 30]


def test_arguments_are_copies():
    kept = []

    def agent(observation, configuration):
        observation.inner.value = 1
        observation["array"][0] = 1
        configuration.actTimeout = 0
        kept.append(observation)
        return 1

    environment = context()
    given = {"inner": {"value": 0}, "array": np.zeros(2), "list": [{"a": 1}]}
    with Agent(agent, environment) as made:
        assert made.act(given)[0] == 1
    assert given["inner"] == {"value": 0}
    assert not given["array"].any()
    assert environment.configuration["actTimeout"] == 30
    assert kept[0].list[0].a == 1
    with pytest.raises(AttributeError, match="no key 'missing'; expected one of"):
        kept[0].missing  # noqa: B018


def test_a_failure_is_passed_on():
    failure = AgentFailure("ERROR", "why not")
    assert act(lambda: failure) == failure
