"""What packages import, and what they say without a library that they need.

One fresh interpreter is asked for all of it: each import happens in a fork, of which the others know nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, sys


def answer(missing, code, looked_for):
    if missing:
        # How Python itself marks a module that must not be found.
        sys.modules[missing] = None
    try:
        exec(code, {})
    except ImportError as error:
        return str(error)
    return [name for name in looked_for if name in sys.modules]


answers = []
for question in json.load(sys.stdin):
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, json.dumps(answer(*question)).encode())
        os._exit(0)
    os.close(write)
    with open(read) as file:
        answers.append(file.read())
    os.waitpid(child, 0)
print(json.dumps(answers))
"""
WEB, MESSAGING = "parllel.distributed.web", "parllel.distributed.messaging"
REMOTE, OPERATORS = "parllel.distributed.remote", "parllel.distributed.operators"
BROKER = f"from {MESSAGING} import KafkaBroker; KafkaBroker('kafka', bootstrap='127.0.0.1:1')"
SERVE = f"import {OPERATORS} as operators; operators.serve, operators.Decision"
# The module that is missing, the code, and the beginning of the error with the extra.
MISSING = {
    "wire": ("msgspec", "import parllel.distributed.wire", "parllel.distributed.wire", "wire"),
    "web": ("msgspec", f"from {WEB} import WebServer", f"{WEB}.WebServer", "remote"),
    "server": ("h11", f"from {WEB} import WebServer", f"{WEB}.WebServer", "remote"),
    "messaging": ("msgspec", f"import {MESSAGING}", MESSAGING, "wire"),
    "kafka": ("confluent_kafka", BROKER, f"{MESSAGING}.kafka", "kafka"),
    "remote": ("msgspec", f"import {REMOTE}", REMOTE, "remote"),
    "remote server": ("h11", f"import {REMOTE}", REMOTE, "remote"),
    "protobuf": ("google", f"import {REMOTE}", REMOTE, "remote"),
    "operators": ("msgspec", SERVE, f"{OPERATORS}.serve", "operators"),
}
LIBRARIES = {"confluent_kafka": "confluent-kafka", "google": "google.protobuf"}
# What none of these imports has.
LIGHT = {
    f"from {WEB} import WebServer": ("torch", "ray", "numba"),
    f"import {WEB}.http_client": ("uvicorn", "h11", "msgspec", "starlette"),
    f"import {MESSAGING}": ("confluent_kafka", "torch", "ray", "numba", "pettingzoo"),
    f"import {REMOTE}": ("torch", "ray"),
    SERVE: (
        *("torch", "ray", "numba", "matplotlib", "PIL", "h11", "httpx2", "parllel.cages"),
        *("parllel.policies.policy_loading", "parllel.buffers", "parllel.system.processes"),
    ),
}


@pytest.fixture(scope="module")
def answers():
    """What the interpreter answers, by the module that is missing and the code."""
    questions = [(missing, code, ()) for missing, code, *_ in MISSING.values()]
    questions += [(None, code, heavy) for code, heavy in LIGHT.items()]
    program = [sys.executable, "-c", PROGRAM]
    asked = json.dumps(questions)
    done = subprocess.run(program, input=asked, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(answer) for answer in json.loads(done.stdout)]
    return {question[:2]: one for question, one in zip(questions, found, strict=True)}


@pytest.mark.parametrize(("missing", "code", "user", "extra"), MISSING.values(), ids=MISSING)
def test_the_error_names_the_extra(answers, missing, code, user, extra):
    command = f"pip install '.[{extra}]' in a checkout of parllel"
    assert answers[missing, code] == f"{user} needs {LIBRARIES.get(missing, missing)}: {command}"


@pytest.mark.parametrize("code", LIGHT)
def test_nothing_heavy_is_imported(answers, code):
    assert answers[None, code] == []
