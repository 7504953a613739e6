from __future__ import annotations

import contextlib

import pytest
from serving import served_here

from parllel.distributed.remote.server import Actions
from parllel.distributed.remote.server.permissions import Permissions


@pytest.fixture
def agents(tmp_path):
    """A folder with agents, which tests let servers load."""
    return write_agents(tmp_path / "agents")


@pytest.fixture(scope="module")
def shared_agents(tmp_path_factory):
    """The same for a server that the tests of a file share, which write nothing to it."""
    return write_agents(tmp_path_factory.mktemp("shared") / "agents")


def write_agents(folder):
    folder.mkdir()
    for name, source in AGENTS.items():
        (folder / f"{name}.py").write_text(source)
    return folder


AGENTS = {
    "by_step": "def agent(observation):\n    return observation.step % 3\n",
    "failing": "def agent(observation):\n    raise ValueError('no idea')\n",
    "sleeping": "import time\n\ndef agent(observation):\n    time.sleep(600)\n",
    "broken": "def agent(observation:\n    pass\n",
    "configured": "def agent(observation, configuration):\n    return configuration.episodeSteps\n",
}


@pytest.fixture
def actions(agents):
    """What a server does that may load the agents of the folder."""
    with Actions(Permissions(agents)) as made:
        yield made


@pytest.fixture
def serve():
    """Return what starts a server with permissions, and returns its URL."""
    with contextlib.ExitStack() as stack:

        def serve(permissions=None, **options):
            return stack.enter_context(served_here(permissions, **options))

        yield serve
