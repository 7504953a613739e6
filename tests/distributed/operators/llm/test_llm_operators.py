"""Language models as operators, against scripted servers: processes, telemetry, results, keys."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from launching import run_worker
from left_records import records
from scripted import KEY

from parllel.distributed.operators import (
    Experiment,
    MultiAgentConfig,
    OperatorConfig,
)
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

PRICE = {"prompt": 2.0, "completion": 10.0}


@pytest.fixture
def serve():
    """A function that starts a server with rules, and returns the settings of a model behind it."""
    with ExitStack() as servers:

        def start(*rules, **settings):
            server = servers.enter_context(ScriptedServer(rules))
            start.servers.append(server)
            return {"model": "any", "base_url": server.base_url, "attempts": 0, **settings}

        start.servers = []
        yield start


@pytest.fixture
def dead_proxies(monkeypatch):
    """Proxies that nothing answers at, in both spellings."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for spelled in (name, name.upper()):
            monkeypatch.setenv(spelled, "http://127.0.0.1:9")


def operator(name, settings, **options):
    given = {"max_steps": 4, "passed": ["*_proxy", "*_PROXY"], **options}
    return OperatorConfig("llm", name, "CartPole-v1", settings=settings, **given)


def test_what_models_say_is_in_records_and_what_they_take_in_results(
    serve, dead_proxies, tmp_path, monkeypatch
):
    monkeypatch.setenv("MY_KEY", KEY)
    rules = [
        Rule("Action: 1", times=3, usage=(100, 10)),
        Rule("hm", times=1, usage=(100, 10)),
        Rule("Action: 0", usage=(50, 2)),
    ]
    experiment = Experiment(
        "models",
        [
            operator("model", serve(*rules, price=PRICE, api_key_env="MY_KEY")),
            OperatorConfig("baseline", "random", "CartPole-v1", policy="random", max_steps=4),
        ],
        seeds=range(2),
    )
    result = experiment.run(base=tmp_path)
    assert result.failures == ()
    steps = records(result.folder, "models_model", "steps")
    assert [step["raw"] for step in steps] == ["Action: 1"] * 3 + ["hm"] + ["Action: 0"] * 4
    assert [step["parsed"] for step in steps] == [1, 1, 1, None, 0, 0, 0, 0]
    assert [step["executed"] for step in steps[4:]] == [0] * 4
    assert steps[3]["executed"] in (0, 1)
    counts = [(s["tokens"], s["prompt_tokens"], s["completion_tokens"]) for s in steps]
    assert counts == [(110, 100, 10)] * 4 + [(52, 50, 2)] * 4
    (group,) = result.groups
    model, random = group.operators
    assert (model.tokens.mean, model.total_tokens) == (324, 648)
    assert model.total_cost == pytest.approx((2 * 600 + 10 * 48) / 1e6)
    assert model.cost.mean == pytest.approx(model.total_cost / 2)
    assert (random.tokens, random.total_tokens, random.cost) == (None, None, None)
    written = json.loads((result.folder / "results.json").read_text())
    assert written["results"][0]["operators"][0]["total_tokens"] == 648
    assert {request.authorization for request in serve.servers[0].requests} == {f"Bearer {KEY}"}


def command_lines():
    """Return the argument lists of all processes of this machine that may be read."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:  # it has ended since
            continue
    return b"\n".join(found)


def test_failures_are_those_of_one_operator_and_no_file_has_a_key(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    seen = []

    def look(messages):
        seen.append(command_lines())
        return "Action: 1"

    key = {"api_key_env": "MY_KEY", "retries": 0}
    models = {
        "refused": serve(Rule("not with", status=401, echoes_key=True), **key),
        "late": serve(Rule("late", delay_s=60), timeout_s=0.3, **key),
        "poor": serve(Rule("Action: 1", usage=(60, 10)), token_budget=300, **key),
        "strict": serve(Rule("hm"), unparsed="error", **key),
        "telling": serve(Rule("Action: 1 for", echoes_key=True), **key),
        "good": serve(Rule(look), **key),
    }
    operators = [operator(name, settings) for name, settings in models.items()]
    result = Experiment("failing", operators, seeds=range(3), restarts=0).run(base=tmp_path)
    (group,) = result.groups
    found = {one.operator_id: one for one in group.operators}
    said = {name: one.failures[0] for name, one in found.items() if one.failures}
    assert {name: (one.ended, one.failed) for name, one in found.items()} == {
        **dict.fromkeys(("refused", "late", "strict"), (0, 3)),
        "poor": (1, 2),
        "telling": (3, 0),
        "good": (3, 0),
    }
    assert "status 401: not with Bearer (api_key)" in said["refused"]
    assert "no reply within 0.3 s" in said["late"]
    assert "the budget of 300 tokens is used up (350 tokens used)" in said["poor"]
    assert "the answer names no action: 'hm'" in said["strict"]
    steps = records(result.folder, "failing_telling", "steps")
    assert {step["raw"] for step in steps} == {"Action: 1 for Bearer (api_key)"}
    # Half of a key, too, as where texts are cut.
    half = KEY[:9].encode()
    assert seen
    assert b"operators_worker" in seen[0]
    assert not any(half in lines for lines in seen)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(list((result.folder / "logs").iterdir())) == len(models)
    assert [path for path, content in files.items() if half in content] == []


def test_models_play_a_game_of_two(serve, tmp_path):
    def first_legal(messages):
        return f"Action: {messages[-1]['content'].rpartition('Legal actions: ')[2].split(',')[0]}"

    players = {
        f"player_{i}": OperatorConfig("llm", f"model-{i}", settings=serve(Rule(first_legal)))
        for i in (1, 2)
    }
    game = MultiAgentConfig("duel", "pettingzoo/classic/tictactoe_v3", players)
    result = Experiment("games", [game], seeds=[0]).run(base=tmp_path)
    assert result.failures == ()
    steps = records(result.folder, "games_duel", "steps")
    assert [step["executed"] for step in steps] == [0, 1, 2, 3, 4, 5, 6]
    assert not any(step["illegal"] for step in steps)
    one, two = result.groups[0].operators
    assert (one.total_reward.mean, two.total_reward.mean) == (1, -1)
    assert one.total_tokens == sum(s["tokens"] for s in steps if s["operator_id"] == "model-1")


def test_a_worker_that_waits_for_an_answer_ends_with_sigterm(serve, tmp_path):
    settings = json.dumps(serve(Rule("late", delay_s=60)))
    command = [sys.executable, "-m", "parllel.distributed.operators.workers.operators_worker"]
    command += ["--env-id", "CartPole-v1", "--settings", settings]
    with subprocess.Popen([*command, "--telemetry-dir", str(tmp_path)]) as process:
        while not serve.servers[0].requests:
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--settings", '{"model": "any"}', "--policy", "random"], "--policy: expected no policy"),
        (["--settings", '{"model": ""}'], "settings: model: expected the name of a model"),
        (["--settings", '{"model": "any", "turns": 2}'], "settings: expected names from"),
        (["--settings", '{"model": "any"}'], "the environment variable OPENAI_API_KEY is not set"),
        ([], "--policy: expected random, noop, .*, or name a language model in --settings"),
    ],
)
def test_a_batch_that_cannot_begin_says_why(words, said, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = run_worker("operators_worker", "--env-id", "CartPole-v1", *words)
    assert done.returncode == 1
    assert re.search(f"Failed to load policy: .*{said}", done.stderr)
