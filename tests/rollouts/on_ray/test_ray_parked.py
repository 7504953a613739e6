"""Environments and workers that are given up on Ray: the trainer hears why, and the others go on."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import pytest
from ray_setup import SlowEnv, build_ready, check_ledgers, publish, rollouts, wait_until

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300), pytest.mark.usefixtures("ray_here")]


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


def build_one_dying(place):
    """Put worker 0 together with one environment that dies, worker 1 with nothing else."""
    makes = [SlowEnv if place.name == "worker 0" else DyingEnv, DyingEnv]
    return build_ready(place, makes=makes, processes=True, restarts=0)


def test_parked_environments_are_reported(recwarn):
    with rollouts(build_one_dying, 2) as (buffer, _, workers):
        publish(workers, 1)

        def parked():
            workers.check()
            buffer.fetch(1, 0.1)
            phases = [status.phase for status in workers.statuses()]
            return len(recwarn) == 4 and phases == ["running", "parked"]

        wait_until(parked, "one parked worker, and one parked environment of the other")
        said = sorted(str(warning.message).replace("\n", " ") for warning in recwarn)
        dead = "is parked: 0 restarts .*exited with code 3"
        for text, who in zip(
            said,
            (
                "worker 0: environment 1",
                "worker 1 is parked: environment .",
                "worker 1: environment 0",
                "worker 1: environment 1",
            ),
            strict=True,
        ):
            assert re.match(f"{who} {dead}", text), text
        assert workers.stats["workers/parked"] == 4
        assert re.search(
            r"worker 0: environment 1 is parked: .*exited with code 3", workers.overview()
        )
        # The others go on.
        steps = workers.ask_statuses()[0].steps
        wait_until(
            lambda: buffer.fetch(1, 1.0) and workers.ask_statuses()[0].steps > steps + 8, "steps"
        )
        workers.close()
        check_ledgers(workers.statuses(), buffer)


def test_an_environment_that_dies_while_a_worker_is_built(tmp_path):
    make_env = partial(LateEnv, str(tmp_path / "flag"))
    with rollouts(n=1, make_env=make_env, processes=True) as (buffer, _, workers):
        publish(workers, 1)
        (fragment,) = buffer.fetch(1, 60)
        assert fragment.producer == "worker 0, start 2"
        died, _ = workers.ask_statuses()
        assert died.phase == "died"
        assert "could not be built" in died.reason
        assert "exited with code 4" in died.reason
