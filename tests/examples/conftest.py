from __future__ import annotations

from pathlib import Path

import pytest
from script_server import ScriptServer

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(scope="session")
def scripts():
    """Yield a server that runs examples, each in a process of its own."""
    modules = ("parllel_patterns", "parllel.torch", "torch._dynamo", "torch.utils.tensorboard")
    with ScriptServer([*modules, "parllel.pictures"]) as server:
        yield server


@pytest.fixture(scope="session")
def example(scripts):
    """Return a function that runs an example in a folder, and returns what it printed."""

    def run(script, *arguments, folder, status=0):
        done = scripts.run(EXAMPLES / script, *arguments, cwd=folder)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run
