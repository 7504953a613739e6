"""A trainer on Ray that is killed leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import ray
from ray_setup import EITHER_WAY, gone, wait_until

pytestmark = pytest.mark.heavy
FOLDER = Path(__file__).parent
# Of Ray itself: they end a minute after the others.
AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
# Where scripts find what all tests of rollouts share, and the parllel that is tested.
SETUP_PATH = {"PYTHONPATH": os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])}


@contextmanager
def driver(*arguments):
    """Start a run on Ray; yield it, and the processes of its worker."""
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / "ray_driver.py"), *arguments],
        env={**os.environ, **SETUP_PATH},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def end(process, number):
    """Send a signal, and wait for the end by it."""
    # A terminal sends Ctrl-C to all processes of the group.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    assert process.wait(60) == -number


# Each way with one Ray always, with the other one seldom, as they take long.
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.soak),
    ],
)
def test_a_ray_of_its_own_goes_with_it(ray_folder, number):
    with driver() as (process, workers):
        children = psutil.Process(process.pid).children(recursive=True)
        agents = [child for child in children if child.cmdline()[0] in AGENTS]
        started = [child.pid for child in children if child not in agents]
        assert set(workers) < set(started)
        end(process, number)
        wait_until(lambda: all(map(gone, started)), "the end of what it started")
        for agent in agents:
            with suppress(psutil.NoSuchProcess):
                agent.kill()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed", marks=pytest.mark.soak),
        pytest.param(signal.SIGINT, id="Ctrl-C"),
    ],
)
def test_a_ray_of_others_loses_its_actors(ray_here, number):
    address = ray.get_runtime_context().gcs_address
    with driver(address) as (process, workers):
        end(process, number)
        wait_until(lambda: all(map(gone, workers)), "the end of its worker")
    assert ray.is_initialized()


def said_by(script, *arguments):
    """Run a script, and return what it says of itself, and nothing else: Ray is not to print anything."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        env={**os.environ, **SETUP_PATH},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_connection_that_ends_too_early(ray_here):
    said = said_by("ray_left.py", ray.get_runtime_context().gcs_address)
    assert said["fetched"] == 1
    assert (
        "ConnectionError: RaySession: address: expected the address of a Ray cluster"
        in said["version"]
    )
    assert "Ray: 2.41.0 Python" in said["version"]
    for name in ("check", "publish", "fetch"):
        assert "Ray was shut down together with its actors" in said[name]
        assert said[name].startswith("WorkerDiedError: Ray")


@EITHER_WAY
def test_a_node_is_lost(ray_folder, large_bytes):
    said = said_by("two_nodes.py", str(large_bytes))
    assert "node" in said["reason"]
    assert said["accepted"] > said["rejected"] == 0
