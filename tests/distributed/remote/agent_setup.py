"""What tests of agents need of an environment, and agents in files."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace

from parllel.distributed.remote import Agent, AgentSettings


def context(agents=None, *, debug=False, **configuration):
    """Return the part of an environment that agents are made with."""
    return SimpleNamespace(
        name="rps",
        configuration={"actTimeout": 30, "agentTimeout": 60, **configuration},
        agents=agents or {},
        debug=debug,
    )


def file_agent(folder, source, *, name="agent.py", environment=None, **settings):
    """Return an agent of a file with this source, in an environment or in one of these settings."""
    path = folder / name
    path.write_text(textwrap.dedent(source))
    names = ("memory_limit_bytes", "variables", "writable")
    given = {name: settings.pop(name) for name in names if name in settings}
    return Agent(str(path), environment or context(**settings), AgentSettings(**given))
