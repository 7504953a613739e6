"""Our side on Ray in a process of its own, which answers questions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.peers.catalogue import Entry
from benchmarks.peers.client import SideError, SideProcess
from benchmarks.peers.driver import opened
from benchmarks.peers.workload import Workload
from benchmarks.rollouts.catalogue import SIDES, VENV

PROBE_SIDE = SIDES + "ray_probe_side:RayProbeSide"
CARTPOLE = Workload("CartPole-v1")


@contextmanager
def probe_server(settings: dict[str, Any], workload: Workload = CARTPOLE) -> Iterator[SideProcess]:
    """Start it, and end it afterwards.

    Raises:
        SideError: if it cannot be started.
    """
    entry = Entry("probes", PROBE_SIDE, lambda *_: [settings], "ours", VENV, halts=False)
    if entry.python is None:
        raise SideError(f"run python benchmarks/peers/venvs.py {VENV} first")
    with opened(entry, workload, settings) as (server, _):
        assert isinstance(server, SideProcess)
        yield server
