"""The server that stands in for a language model, and what the workers make of its answers."""

from __future__ import annotations

import json
import signal

import pytest
from launching import run_worker
from scripted import HELLO
from served import Served

from parllel.distributed.operators.llm.llm_client import LlmClient
from parllel.distributed.operators.llm.scripted_server import random_answer

COMMAND = ("-m", "parllel.distributed.operators.scripted_llm")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_answers_by_turns_until_a_signal(number):
    with Served(*COMMAND, "--answer", "left", "--answer", "right") as server:
        with LlmClient("any", base_url=server.url) as client:
            assert [client.chat(HELLO).text for _ in range(3)] == ["left", "right", "left"]
        server.process.send_signal(number)
        assert server.process.wait(20) == 0


@pytest.mark.parametrize(
    ("module", "env_id", "max_steps"),
    [
        ("operators_worker", "FrozenLake-v1", 5),
        ("operators_worker", "Pendulum-v1", 5),
        ("balrog_worker", "MiniGrid-Empty-5x5-v0", 5),
        ("chess_worker", "pettingzoo/classic/chess_v6", 3),
    ],
)
@pytest.mark.few(2)
def test_random_answers_are_understood_by_every_worker(tmp_path, module, env_id, max_steps):
    settings = {"model": "any", "attempts": 0, "unparsed": "error"}
    words = ["--env-id", env_id, "--max-steps", str(max_steps), "--telemetry-dir", str(tmp_path)]
    with Served(*COMMAND) as server:
        given = json.dumps({**settings, "base_url": server.url})
        done = run_worker(module, *words, "--settings", given)
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
