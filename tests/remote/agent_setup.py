"""What tests of agents need of an environment, and agents in files."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace

from parllel.remote import Agent


def context(agents=None, *, debug=False, **configuration):
    """Return the part of an environment that agents are made with."""
    return SimpleNamespace(
        name="rps",
        configuration={"actTimeout": 30, "agentTimeout": 60, **configuration},
        agents=agents or {},
        debug=debug,
    )


def file_agent(folder, source, *, name="agent.py", **settings):
    """Return an agent of a file with this source."""
    path = folder / name
    path.write_text(textwrap.dedent(source))
    limit = settings.pop("memory_limit_bytes", None)
    return Agent(str(path), context(**settings), memory_limit_bytes=limit)
