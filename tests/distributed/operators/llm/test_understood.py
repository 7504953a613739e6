"""A language model that is not understood: in records, results, sentences and exit statuses."""

from __future__ import annotations

import json

import pytest
from launching import run_worker
from left_records import records
from scripted import KEY

from parllel.cli import main
from parllel.distributed.operators import (
    Experiment,
    MultiAgentConfig,
    OperatorConfig,
)
from parllel.distributed.operators.llm.answer import prompts_of
from parllel.distributed.operators.llm.scripted_server import Rule, ScriptedServer

LAKE = "FrozenLake-v1"
TOOLS = [{"id": "1", "type": "function", "function": {"name": "step", "arguments": '{"a": 2}'}}]
CALLS_TOOLS = Rule(None, message={"tool_calls": TOOLS}, usage=(20, 5))
THINKS = Rule(
    None, message={"reasoning_content": f"right? {KEY}"}, finish_reason="length", usage=(20, 5)
)
SPEAKS = Rule("Action: right", usage=(20, 5))


@pytest.fixture
def serve():
    """Return a function that starts a server with rules, and returns settings for it."""
    servers = []

    def start(*rules, **settings):
        servers.append(ScriptedServer(rules))
        return {"model": "any", "base_url": servers[-1].base_url, **settings}

    start.servers = servers
    yield start
    for server in servers:
        server.close()


def llm(name, settings, **options):
    return OperatorConfig("llm", name, LAKE, settings=settings, **{"max_steps": 4, **options})


def records_of(result, name, kind):
    return records(result.folder, f"{result.folder.name}_{name}", kind)


def test_a_model_that_is_never_understood_is_not_scored_as_a_player(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    key = {"api_key_env": "MY_KEY"}
    operators = [
        OperatorConfig("baseline", "random", LAKE, policy="random", max_steps=4),
        llm("tools", serve(CALLS_TOOLS, attempts=1)),
        llm("thinker", serve(THINKS, attempts=0, **key)),
        llm("speaker", serve(SPEAKS)),
    ]
    result = Experiment("misread", operators, seeds=range(2)).run(tmp_path)
    (group,) = result.groups
    found = {one.operator_id: (one.decisions, one.understood) for one in group.operators}
    n = {
        name: sum(e["episode_length"] for e in records_of(result, name, "episodes"))
        for name in ("tools", "thinker", "speaker")
    }
    assert found == {
        "random": (None, None),
        "tools": (n["tools"], 0.0),
        "thinker": (n["thinker"], 0.0),
        "speaker": (n["speaker"], 1.0),
    }
    said = [
        f"{name}: 0 of {n[name]} decisions were understood, less than 50 %: its results say little of "
        "the model; telemetry has its answers"
        for name in ("tools", "thinker")
    ]
    assert (list(result.warnings), group.sentences[:2]) == (said, said)
    assert (result.failures, result.exit_status) == ((), 1)
    step = records_of(result, "tools", "steps")[0]
    assert (step["raw"], step["parsed"], step["understood"], step["calls"]) == (
        "\n---\n",
        None,
        False,
        2,
    )
    assert step["answers"] == [{"tool_calls": TOOLS, "finish_reason": "stop"}] * 2
    step = records_of(result, "thinker", "steps")[0]
    assert step["answers"] == [{"reasoning_content": "right? (api_key)", "finish_reason": "length"}]
    episode = records_of(result, "thinker", "episodes")[0]
    assert (episode["understood"], episode["decisions"]) == (0, episode["episode_length"])
    assert episode["calls"] == episode["decisions"]
    assert "understood" not in records_of(result, "random", "episodes")[0]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if KEY[:9].encode() in path.read_bytes()] == []


def test_the_command_shows_the_column_and_ends_with_1(serve, tmp_path, capsys):
    half = [Rule("hm", times=1), SPEAKS]  # of the first 4 decisions 3 are understood
    for name, threshold, status in (("low", 0.7, 0), ("high", 0.8, 1)):
        settings = json.dumps(serve(*half, attempts=0))
        file = tmp_path / f"{name}.py"
        file.write_text(
            "from parllel.distributed.operators import Experiment, OperatorConfig\n"
            f"settings = {settings}\n"
            f"model = OperatorConfig('llm', 'model', {LAKE!r}, settings=settings, max_steps=4,\n"
            "    env_kwargs={'desc': ['SFFFFFFF', 'FFFFFFFF', 'FFFFFFFG']})\n"
            f"experiment = Experiment({name!r}, [model], seeds=[1], min_understood={threshold})\n"
        )
        assert main(["operators", "run", str(file), "--dir", str(tmp_path / "runs")]) == status
        out, err = capsys.readouterr()
        assert "understood %" in out
        assert " 75 " in out
        said = "model: 3 of 4 decisions were understood, less than 80 %"
        assert (said in out, said in err) == (status == 1, status == 1)
        assert main(["operators", "results", str(tmp_path / "runs" / name), "--json"]) == 0
        (group,) = json.loads(capsys.readouterr().out)
        assert (group["operators"][0]["understood"], group["operators"][0]["decisions"]) == (
            0.75,
            4,
        )
        assert len(group["sentences"]) == status


@pytest.mark.parametrize("value", [-0.1, 1.5, "half", None])
def test_a_threshold_that_cannot_be_is_refused(value):
    random = OperatorConfig("baseline", "random", LAKE, policy="random")
    with pytest.raises(ValueError, match="min_understood: expected"):
        Experiment("x", [random], seeds=[1], min_understood=value)


def test_a_worker_by_itself_ends_with_1_too(serve, tmp_path):
    settings = json.dumps(serve(CALLS_TOOLS, attempts=0))
    words = ["--env-id", LAKE, "--settings", settings, "--max-steps", "3"]
    words += ["--telemetry-dir", str(tmp_path)]
    for n, (more, status) in enumerate((([], 1), (["--min-understood", "0"], 0))):
        done = run_worker("operators_worker", *words, "--run-id", f"r{n}", *more)
        assert done.returncode == status, done.stderr
        (record,) = [json.loads(line) for line in done.stdout.splitlines()]
        assert (record["understood"], record["status"]) == (0, "ended")
        assert ("decisions were understood, less than 50 %" in done.stderr) == bool(status)


def test_tokens_of_a_decision_that_failed_are_in_a_record(serve, tmp_path):
    strict = serve(CALLS_TOOLS, attempts=1, unparsed="error")
    breaks = serve(Rule("hm", times=1, usage=(7, 3)), Rule("no", status=400))
    operators = [llm("strict", strict), llm("breaks", breaks)]
    result = Experiment("failed", operators, seeds=[1]).run(tmp_path)
    strict, breaks = result.groups[0].operators
    (episode,) = records_of(result, "strict", "episodes")
    assert (episode["status"], episode["tokens"], episode["calls"]) == ("failed", 50, 2)
    assert (episode["decisions"], episode["understood"]) == (1, 0)
    assert episode["unplayed"]["tokens"] == 50
    assert episode["unplayed"]["answers"] == [{"tool_calls": TOOLS, "finish_reason": "stop"}] * 2
    (episode,) = records_of(result, "breaks", "episodes")
    assert (episode["tokens"], episode["unplayed"]["raw"]) == (10, "hm")
    assert "decisions" not in episode  # the server's failure, not the model's
    assert (strict.total_tokens, breaks.total_tokens) == (50, 10)


def test_tokens_of_all_players_of_a_game_that_failed_are_in_records(serve, tmp_path):
    players = {
        "player_0": OperatorConfig("llm", "good", settings=serve(Rule("Action: 1", usage=(7, 3)))),
        "player_1": OperatorConfig(
            "llm", "strict", settings=serve(Rule("hm", usage=(4, 1)), attempts=0, unparsed="error")
        ),
    }
    # Both are asked at the same time: what one is paid for is not lost as the other fails.
    game = MultiAgentConfig("duel", "pettingzoo/classic/rps_v2", players)
    result = Experiment("game", [game], seeds=[1]).run(tmp_path)
    episodes = {e["operator_id"]: e for e in records_of(result, "duel", "episodes")}
    assert records_of(result, "duel", "steps") == []
    assert {name: (e["status"], e["tokens"]) for name, e in episodes.items()} == {
        "good": ("failed", 10),
        "strict": ("failed", 5),
    }
    assert episodes["good"]["unplayed"]["raw"] == "Action: 1"


def test_a_batch_records_what_a_failed_decision_cost(serve, tmp_path):
    settings = json.dumps(serve(Rule("hm", usage=(4, 1)), attempts=0, unparsed="error"))
    words = ["--env-id", LAKE, "--settings", settings, "--telemetry-dir", str(tmp_path)]
    done = run_worker("operators_worker", *words)
    (record,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, record["tokens"], record["unplayed"]["raw"]) == (1, 5, "hm")


def test_an_environment_that_raises_does_not_lose_the_decision(serve, tmp_path):
    (tmp_path / "bad.py").write_text(
        "import gymnasium as gym\n"
        "class Bad(gym.Env):\n"
        "    observation_space = action_space = gym.spaces.Discrete(4)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return 0, {}\n"
        "    def step(self, action):\n"
        "        raise OSError('the lake froze')\n"
    )
    model = OperatorConfig(
        "llm", "model", f"{tmp_path}/bad.py:Bad", settings=serve(Rule("Action: 1", usage=(4, 1)))
    )
    result = Experiment("bad", [model], seeds=[1]).run(tmp_path)
    (episode,) = records_of(result, "model", "episodes")
    assert "the lake froze" in episode["failure"]
    assert (episode["tokens"], episode["unplayed"]["raw"]) == (5, "Action: 1")


def test_records_hold_the_messages_of_their_decision(serve, tmp_path):
    rules = [Rule("hm", times=1), Rule("Action: right", times=1), Rule("no idea")]
    model = llm("model", serve(*rules, attempts=1, instructions="Be brief.", history=3))
    result = Experiment("asked", [model], seeds=[1]).run(tmp_path)
    steps = records_of(result, "model", "steps")
    sent = [list(request.messages) for request in serve.servers[0].requests]
    at = 0
    for n_turns, step in enumerate(steps):
        # Of the last request, which has all before it, what is neither an answer nor an earlier turn.
        at += step["calls"]
        whole = [(one["role"], one["content"]) for one in sent[at - 1]]
        own = [whole[0], *whole[1 + 2 * min(n_turns, 3) :]]
        prompts = [(one["role"], one["content"]) for one in step["prompts"]]
        assert prompts == [one for one in own if one[0] != "assistant"]
        assert [role for role, _ in prompts] == ["system", *["user"] * step["calls"]]
        assert len(step["answers"]) == step["calls"]
        assert prompts[0][1].startswith("Be brief.")
    assert [step["calls"] for step in steps[:2]] == [2, 2]


def test_a_message_that_utf8_cannot_hold_is_kept_in_part():
    text = "\ud800" + "x" * 300_000
    kept = prompts_of([{"role": "user", "content": text}, {"role": "assistant", "content": "a"}])
    (message,) = kept
    assert message["content"].startswith("?x")
    assert message["content"].endswith("(the first 262,144 of 300,001 characters)")
    assert len(message["content"].encode()) < 263_000
