"""Of a file the function acts that kaggle-environments would play, or the file is refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import kaggle_files
import pytest
from agent_setup import context
from kaggle_files import FILES, NO_ACTION

from parllel.distributed.remote import Agent

OBSERVATION = {"step": 1, "remainingOverageTime": 60}


@pytest.fixture(scope="module")
def theirs(kaggle_python, tmp_path_factory):
    """What the package plays of each file."""
    folder = tmp_path_factory.mktemp("theirs")
    out = folder / "played.json"
    program = Path(kaggle_files.__file__)
    subprocess.run(
        [kaggle_python, program, folder, out],
        check=True,
        capture_output=True,
        timeout=240,
    )
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", FILES)
@pytest.mark.few(16)
def test_the_same_function_plays_in_both(theirs, tmp_path, name):
    path = kaggle_files.write(tmp_path)[name]
    _, refused = FILES[name]
    if refused:
        assert theirs[name] is NO_ACTION
        with pytest.raises(ValueError, match=r"agent_\d+\.py"):
            Agent(path, context())
        return
    assert isinstance(theirs[name], str)
    with Agent(path, context()) as agent:
        assert agent.act(OBSERVATION)[0] == theirs[name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("class after it", r"the last name that it defines is Helper, a class"),
        ("built-in name", r"the last name that it defines is size, a built-in function"),
        ("type alias", r"the last name that it defines is Board, a type"),
        ("nothing", r"expected a function or a Policy, got none"),
    ],
)
def test_a_refusal_says_what_stands_last_and_what_to_do(tmp_path, name, said):
    path = kaggle_files.write(tmp_path)[name]
    with pytest.raises(ValueError, match=said) as raised:
        Agent(path, context())
    if name == "nothing":
        return
    assert raised.match(r"define the agent after it, or name it, as in agent_\d+\.py:agent$")
    with Agent(f"{path}:agent", context()) as agent:
        assert agent.act(OBSERVATION)[0] == "agent"


def test_source_text_has_the_same_rule():
    for name in (
        "alias of an import",
        "import alone",
        "import after it",
        "star",
        "module after it",
    ):
        source, _ = FILES[name]
        assert "lib" in source  # which source text has none of beside it
    for name, played in (
        ("underscore", "_helper"),
        ("bound before", "helper"),
        ("lambda", "lambda"),
    ):
        with Agent(FILES[name][0], context()) as agent:
            assert agent.act(OBSERVATION)[0] == played
    with pytest.raises(ValueError, match="the last name that it defines is Helper, a class"):
        Agent(FILES["class after it"][0], context())
