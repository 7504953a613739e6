"""Ways to Ray, and what is said where there is none."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest
import ray

from parllel.distributed.rollouts.on_ray import RaySession
from parllel.errors import install_command

pytestmark = pytest.mark.heavy


def run(code, **environment):
    """Run Python in a process that is not connected with Ray; return what it said last."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_session_of_the_user_goes_on(ray_here):
    with RaySession() as session:
        assert session.address == ray.get_runtime_context().gcs_address
    session.close()
    assert ray.is_initialized()
    with pytest.raises(
        ValueError, match="address: expected None, because this process is already connected"
    ):
        RaySession("127.0.0.1:6379")


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        (
            "import sys; sys.modules['ray'] = None",
            f"ImportError: parllel.distributed.rollouts.on_ray needs Ray: {install_command('rollouts')}",
        ),
        (
            "import sys, types; ray = sys.modules['ray'] = types.ModuleType('ray'); "
            "ray.__version__ = '2.9.3'",
            "ImportError: parllel.distributed.rollouts.on_ray: expected Ray 2.40 or newer, got 2.9.3: "
            "pip install --upgrade ray",
        ),
    ],
    ids=["none", "too old"],
)
def test_ray_is_missing(setup, expected):
    assert run(f"{setup}; import parllel.distributed.rollouts.on_ray") == expected


REFUSED = [
    ("object_store_bytes=10**15", "InsufficientMemoryError: .* of shared memory to be free in"),
    ("'somewhere'", "ValueError: .* expected 'host:port' of a cluster's head node"),
    ("'ray://127.0.0.1:1'", "ValueError: .* expected 'host:port' of a cluster's head node"),
    ("'127.0.0.1:1'", r"ConnectionError: .* got '127.0.0.1:1': \[Errno 111\] Connection refused"),
    ("'127.0.0.1:99999'", "ConnectionError: .* got '127.0.0.1:99999'"),
]


# What runs here and RAY_ADDRESS, for "auto": nothing, and a Ray that is there no more, for which Ray itself
# waits without an end.
AUTO = [
    (
        "set()",
        "''",
        "ConnectionError: .* address='auto': expected exactly one running Ray .* found none or several",
    ),
    ("{'127.0.0.1:1'}", "''", r"ConnectionError: .* got 'auto' .* names '[\d.]*:1'\): .* refused"),
    ("set()", "'127.0.0.1:2'", r"ConnectionError: .* got 'auto' .* names '[\d.]*:2'\): .* refused"),
]


def test_a_session_is_refused_in_one_sentence(tmp_path):
    code = [
        "import functools, os",
        "from parllel.distributed.rollouts.on_ray import RaySession, ray_session",
        "said = []",
    ]
    tried = [(f"RaySession({arguments})", expected) for arguments, expected in REFUSED]
    for running, environment, expected in AUTO:
        find = f"ray_session.ray_services.find_gcs_addresses = functools.cache(lambda: {running})"
        tried.append(
            (f"os.environ['RAY_ADDRESS'] = {environment}; {find}; RaySession('auto')", expected)
        )
    for attempt, _ in tried:
        code += [
            f"try: {attempt}",
            "except Exception as error: said.append(f'{type(error).__name__}: {error}')",
        ]
    code += [
        "os.environ['RAY_ADDRESS'] = ''",
        "attempts = iter(['too slow', 'too slow again'])",
        "def init(*_, **__): raise Exception(next(attempts))",
        "ray_session.ray.init = init",
        "try: RaySession()",
        "except Exception as error: said.append(f'{type(error).__name__}: {error}')",
        "raise SystemExit(repr(said))",
    ]
    said = ast.literal_eval(run("\n".join(code), RAY_TMPDIR=str(tmp_path), RAY_ADDRESS=""))
    last = "ConnectionError: RaySession: Ray did not start here in 2 attempts: too slow again"
    for expected, sentence in zip([*(one for _, one in tried), last], said, strict=True):
        assert re.match(expected, sentence), sentence
        assert "\n" not in sentence


def test_rollouts_without_ray_load_neither_ray_nor_torch():
    code = (
        "import sys, parllel.distributed.rollouts; "
        "assert not {'ray', 'torch'} & set(sys.modules); raise SystemExit('fine')"
    )
    assert run(code) == "fine"
