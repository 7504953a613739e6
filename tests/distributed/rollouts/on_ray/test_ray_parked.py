"""Environments and workers that are given up on Ray: the trainer hears why, and the others go on."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import pytest
from ray_setup import SlowEnv, build_ready, check_ledgers, publish, rollouts, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("ray_here")]


class DyingEnv(SlowEnv):
    """Its process ends in the third step."""

    def step(self, action):
        if self._step == 2:
            os._exit(3)
        return super().step(action)


class LateEnv(SlowEnv):
    """Its process ends while it is made, the first time."""

    def __init__(self, flag):
        if not Path(flag).exists():
            Path(flag).touch()
            os._exit(4)
        super().__init__()


def build_dying(place, flag):
    """Put worker 0 together with one environment that dies, worker 1 with nothing else, worker 2 at last."""
    makes = {
        "worker 0": [SlowEnv, DyingEnv],
        "worker 1": [DyingEnv, DyingEnv],
    }.get(place.name, [partial(LateEnv, flag)])
    return build_ready(place, makes=makes, processes=True, restarts=0)


PARKED = "is parked: 0 restarts .*exited with code 3"
SAID = (
    f"worker 0: environment 1 {PARKED}",
    f"worker 1 is parked: environment . {PARKED}",
    f"worker 1: environment 0 {PARKED}",
    f"worker 1: environment 1 {PARKED}",
    "worker 2 could not be built: .*exited with code 4",
)


def test_the_others_go_on_and_the_reasons_arrive(tmp_path, recwarn):
    build = partial(build_dying, flag=str(tmp_path / "flag"))
    with rollouts(build, 3) as (buffer, _, workers):
        publish(workers, 1)

        def parked():
            workers.check()
            buffer.fetch(1, 0.1)
            phases = {status.name: status.phase for status in workers.statuses()}
            return len(recwarn) == 5 and phases == {
                "worker 0": "running",
                "worker 1": "parked",
                "worker 2": "died",
                "worker 2, start 2": "running",
            }

        wait_until(parked, "what is to be parked")
        said = sorted(str(warning.message).replace("\n", " ") for warning in recwarn)
        for text, expected in zip(said, SAID, strict=True):
            assert re.match(expected, text), text
        assert workers.stats["workers/parked"] == 4
        assert re.search(r"worker 0: environment 1 is parked: .*code 3", workers.overview())
        reasons = {status.name: status.reason for status in workers.statuses()}
        # Its environment's process ended before the worker was there.
        assert re.search("it could not be built: .*exited with code 4", reasons["worker 2"])
        steps = {status.name: status.steps for status in workers.ask_statuses()}

        def gone_on():
            buffer.fetch(2, 1.0)
            now = {status.name: status.steps for status in workers.ask_statuses()}
            return all(now[f"worker {n}"] > steps[f"worker {n}"] + 8 for n in ("0", "2, start 2"))

        wait_until(gone_on, "steps of the others")
        workers.close()
        check_ledgers(workers.statuses(), buffer)
