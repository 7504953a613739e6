"""The server that stands in for a language model, and what the workers make of its answers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
from scripted import HELLO

from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.scripted_server import random_answer


@pytest.fixture
def serving():
    """A function that starts the command, and returns its process and the URL that it prints."""
    started = []

    def start(*words):
        command = [sys.executable, "-m", "parllel.distributed.operators.scripted_llm", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1], started[-1].stdout.readline().split()[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_answers_by_turns_until_a_signal(serving, number):
    process, url = serving("--answer", "left", "--answer", "right")
    with LlmClient("any", base_url=url) as client:
        assert [client.chat(HELLO).text for _ in range(3)] == ["left", "right", "left"]
    process.send_signal(number)
    assert process.wait(20) == 0


@pytest.mark.parametrize(
    ("module", "env_id", "max_steps"),
    [
        ("operators_worker", "FrozenLake-v1", 5),
        ("operators_worker", "Pendulum-v1", 5),
        ("balrog_worker", "MiniGrid-Empty-5x5-v0", 5),
        ("chess_worker", "pettingzoo/classic/chess_v6", 3),
    ],
)
def test_random_answers_are_understood_by_every_worker(
    serving, tmp_path, module, env_id, max_steps
):
    _, url = serving()
    settings = json.dumps({"model": "any", "base_url": url, "attempts": 0, "unparsed": "error"})
    command = [
        sys.executable,
        "-m",
        f"parllel.distributed.operators.workers.{module}",
        "--env-id",
        env_id,
    ]
    command += ["--settings", settings, "--max-steps", str(max_steps)]
    done = subprocess.run(
        [*command, "--telemetry-dir", str(tmp_path)], capture_output=True, text=True, timeout=55
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["status"] == "ended"
    assert record["prompt_tokens"] > record["completion_tokens"] > 0


def test_the_same_dialogue_has_the_same_answer():
    dialogue = [{"role": "system", "content": "An action is a whole number from 0 to 999."}]
    answers = {random_answer(dialogue) for _ in range(5)}
    others = {random_answer([*dialogue, {"role": "user", "content": str(i)}]) for i in range(20)}
    assert len(answers) == 1
    assert len(others) > 10


def test_a_question_of_others_is_not_answered_with_an_action():
    assert random_answer(HELLO) == "I do not know what to do."
