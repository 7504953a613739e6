"""The commands of docs/distributed.md run in order, and each missing extra is named in one sentence."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from shell_pages import ROOT, blocks_of, run_lines, variables
from unused_ports import unused_port

PAGE = (ROOT / "docs" / "distributed.md").read_text()
PORT = "8081"  # which another program may have
MARK = "--- block {}"
TRAIN = "python examples/cartpole/train_ppo.py"
SERVE = "parllel remote serve --environment gymnasium/CartPole-v1 --agent runs/cartpole/ppo-seed0"
EVALUATE = "parllel remote evaluate --environment gymnasium/CartPole-v1 --agents http://127.0.0.1:1"
CLUSTER = "python examples/cartpole_cluster/train_ppo.py --ray"
PILOT = "python examples/messaging/pilot.py runs/cartpole/ppo-seed0"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder with the examples, as the reader's."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


def returns_in(said):
    """Return what `parllel play` and the pilot print of episodes."""
    return re.findall(r"^seed (\d+): return (\S+) in (\d+) steps$", said, re.M)


def bash(command, checkout, *, lacks, folder):
    """Run a command where a library cannot be imported."""
    # What Python imports before anything else.
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{lacks!r}] = None\n")
    given = variables()
    given["PYTHONPATH"] = f"{folder}:{given['PYTHONPATH']}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=checkout,
        env=given,
        capture_output=True,
        text=True,
        timeout=120,
    )


def assert_named(extra, done):
    """Check that a command failed with a sentence that names an extra; return what it said before."""
    *before, sentence = done.stderr.strip().splitlines()
    assert re.search(
        rf": [\w .]+ needs? \S+: pip install '\.\[{extra}\]' in a checkout of parllel$", sentence
    ), done.stderr
    assert done.returncode
    return before


@pytest.mark.heavy
@pytest.mark.timeout(960)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_walk(checkout, ray_folder, tmp_path):
    blocks = blocks_of(PAGE, "sh")
    # In one shell: a server that one block starts is asked in the next.
    lines = "\n".join(f"echo '{MARK.format(i)}'\n{block}" for i, block in enumerate(blocks))
    said = run_lines(lines.replace(PORT, str(unused_port())), checkout, timeout_s=900)
    parts = re.split(r"^--- block \d\n", said, flags=re.M)[1:]
    train, _, serve, compare, scale, broker = parts
    expected = returns_in(train)
    assert [int(seed) for seed, *_ in expected] == list(range(3))
    first = float(expected[0][1])
    assert re.findall(r"\[\[(\S+)\]\]", serve) == [str(first)] * 2
    assert re.search(r"^served - trained +10 +0 +0 +0$", compare, re.M), compare
    assert len(returns_in(scale)) == 3
    assert returns_in(broker) == expected * 2
    # What was trained on a cluster needs none to be played.
    play = "parllel play runs/cartpole_cluster/ppo-seed0 --seeds 0-2"
    done = bash(play, checkout, lacks="ray", folder=tmp_path)
    assert returns_in(done.stdout) == returns_in(scale), done.stderr
    done = bash(f"{PILOT} --kafka mock", checkout, lacks="confluent_kafka", folder=tmp_path)
    assert_named("kafka", done)


@pytest.mark.parametrize(
    ("command", "library", "extra"),
    [
        (TRAIN, "torch", "torch"),
        (TRAIN, "tyro", "cli"),
        (SERVE, "h11", "remote"),
        (SERVE, "msgspec", "remote"),
        (EVALUATE, "jsonschema", "remote"),
        (EVALUATE, "google", "remote"),
        ("parllel operators run comparison.toml", "msgspec", "operators"),
        (CLUSTER, "ray", "rollouts"),
        (PILOT, "msgspec", "wire"),
    ],
)
@pytest.mark.few(3)
def test_what_is_missing_is_named_in_one_sentence(command, library, extra, checkout, tmp_path):
    done = bash(command, checkout, lacks=library, folder=tmp_path)
    traceback = assert_named(extra, done)
    # Python itself prints what a script raises.
    assert not traceback or command.startswith("python")
