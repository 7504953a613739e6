"""`parllel messaging tap` over each broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import uuid

import numpy as np
import pytest

from parllel.cli import main
from parllel.distributed.messaging import KafkaBroker, KafkaMessage, MessageType, TopicManager


@pytest.fixture
def run():
    return f"run-{uuid.uuid4().hex}"


@pytest.fixture
def broker(kafka_address, run):
    with KafkaBroker("kafka", run=run, bootstrap=kafka_address, timeout_s=20) as broker:
        yield broker


@pytest.fixture
def tap(kafka_address, capsys):
    def tap(*arguments):
        status = main(["messaging", "tap", "--bootstrap", kafka_address, *map(str, arguments)])
        output, errors = capsys.readouterr()
        return status, output.splitlines(), errors

    return tap


def act(broker, environment, payload):
    topic = TopicManager.action_topic("grid", "device", environment)
    message = KafkaMessage(environment, "grid", "device", 0.5, MessageType.ACTION, payload)
    broker.publish(topic, message)
    (found,) = broker.consume(topic, "device", environment)
    return found


def test_messages_are_printed_and_stay(broker, run, tap):
    act(broker, "rollout_0", {"action": 3})
    act(broker, "two\nlines\x1b[2J", {"image": np.zeros((84, 84), np.uint8), "far": float("inf")})
    for _ in range(2):
        status, lines, errors = tap("--run", run, "--from-start", "--count", 2, "--timeout", 20)
        assert status == 0
        assert re.fullmatch(rf"reading run '{run}' of [\w.]+:\d+\n", errors)
        pattern = r'rollout_0  \d+\.0\.-  action  grid -> device  {"action": 3}'
        assert re.fullmatch(pattern, lines[0])
        first, _, _, _, payload = lines[1].split("  ")
        assert first == r"two\nlines\x1b[2J"
        assert payload == '{"image": "uint8[84, 84]", "far": "inf"}'


def test_json_has_all_of_a_message(broker, run, tap):
    found = act(broker, "b", {"action": np.arange(20.0), "raw": b"\xff", "pair": (1, None)})
    arguments = ("--run", run, "--json", "--from-start", "--count", 1, "--timeout", 20)
    status, (line,), _ = tap(*arguments)
    assert status == 0
    assert json.loads(line) == {
        "env_id": "b",
        "lease": found.lease,
        "epoch": found.epoch,
        "step": None,
        "sequence": 0,
        "kind": "action",
        "custom_topic": None,
        "sender": "grid",
        "recipient": "device",
        "timestamp": 0.5,
        "payload": {"action": list(range(20)), "raw": "/w==", "pair": [1, None]},
    }


def test_environments_and_kinds_are_chosen(broker, run, tap):
    for environment in ("a", "a_", "b"):
        act(broker, environment, {"action": 1})
    chosen = ("--run", run, "--from-start", "--timeout", 1, "--json")
    status, lines, errors = tap(*chosen, "--env-id", "a", "--env-id", "b", "--count", 3)
    assert (status, [json.loads(line)["env_id"] for line in lines]) == (1, ["a", "b"])
    assert errors.endswith("2 of 3 messages arrived\n")
    status, lines, _ = tap(*chosen, "--kind", "info", "--kind", "broadcast")
    assert (status, lines) == (0, [])


def test_runs_are_listed(broker, run, tap):
    status, lines, errors = tap()
    assert (status, errors) == (0, "")
    assert run in lines
    lines = tap("--json")[1]
    assert {"run": run, "kinds": ["action", "broadcast", "info"]} in map(json.loads, lines)


def test_a_run_that_is_not_there_is_refused(tap):
    status, lines, errors = tap("--run", "nothing-like-it")
    assert (status, lines) == (2, [])
    assert re.match(
        r"parllel: broker \S+: run 'nothing-like-it': topic .* to list the existing runs", errors
    )


def test_ctrl_c_ends_it_without_complaint(broker, run, kafka_address):
    command = [sys.executable, "-m", "parllel", "messaging", "tap", "--run", run]
    with subprocess.Popen(
        [*command, "--bootstrap", kafka_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stderr.readline().startswith("reading run")
            act(broker, "rollout_0", {"action": 1})
            assert child.stdout.readline().startswith("rollout_0")
            child.send_signal(signal.SIGINT)
            assert child.wait(20) == 0
            assert child.stderr.read() == ""
        finally:
            child.kill()


def test_bad_arguments_are_named(tap, tmp_path):
    assert tap("--count", 0)[2] == "parllel: --count: expected at least 1, got 0\n"
    assert "--timeout: expected seconds" in tap("--timeout", "nan")[2]
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=hush\nacks=1\n")
    path.chmod(0o600)
    errors = tap("--config", path)[2]
    assert errors == "parllel: config: 'acks' is set by parllel.distributed.messaging; remove it\n"
