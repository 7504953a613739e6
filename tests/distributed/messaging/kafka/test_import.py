from __future__ import annotations

import subprocess
import sys

from parllel.errors import install_command


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_without_the_client_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from parllel.distributed.messaging import KafkaBroker\n"
        "KafkaBroker('kafka', bootstrap='127.0.0.1:1')"
    )
    last_line = python(code).stderr.strip().splitlines()[-1]
    expected = (
        f"parllel.distributed.messaging.kafka needs confluent-kafka: {install_command('kafka')}"
    )
    assert last_line == f"ImportError: {expected}"


def test_without_msgspec_the_error_names_the_extra():
    done = python("import sys; sys.modules['msgspec'] = None; import parllel.distributed.messaging")
    expected = "parllel.distributed.messaging needs msgspec: pip install '.[wire]' in a checkout of parllel"
    assert done.stderr.strip().splitlines()[-1] == f"ImportError: {expected}"


def test_neither_the_client_nor_anything_else_that_is_heavy_is_imported():
    heavy = ("confluent_kafka", "torch", "ray", "numba", "pettingzoo")
    code = f"import sys, parllel.distributed.messaging; print([n for n in {heavy} if n in sys.modules])"
    assert python(code).stdout.strip() == "[]"
