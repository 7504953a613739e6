"""Statuses of workers become sums for the log, and lines for the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from parllel.distributed.rollouts import PipelineMonitor, Rollouts, WorkerStatus
from parllel.runners.progress import ProgressBar


def counts(produced, accepted, stale=0, rejected=0, lost=0, queued=0):
    return {
        "produced": produced,
        "accepted": accepted,
        "stale": stale,
        "rejected": rejected,
        "lost": lost,
        "queued": queued,
    }


def monitor(**seconds):
    made = PipelineMonitor()
    for stage, value in seconds.items():
        made.add(stage, value)
    made.see_queue("fragments", 2, 8)
    return made.state()


class Told(Rollouts):
    def __init__(self, statuses):
        self._statuses = statuses

    def load_weights(self, weights, version):
        return True

    def check(self):
        pass

    def statuses(self):
        return self._statuses

    def close(self):
        pass


WORKERS = Told(
    [
        WorkerStatus(
            "worker 0", "died", 100, 3, counts=counts(10, 7, stale=1, lost=2), reason="killed"
        ),
        WorkerStatus(
            "worker 1",
            "running",
            50,
            5,
            {3: "restarts are used up. The last reasons:\n  ValueError\n  exited with code 3"},
            4,
            counts(5, 3, queued=2),
            monitor(receive=3),
        ),
        WorkerStatus("worker 0, start 2", "running", 8, 4, {}, 1, {}, monitor(inference=1)),
        WorkerStatus("worker 2", "parked", 7, 1, reason="restarts are used up:\n  node lost"),
    ]
)


def test_sums_for_the_log():
    assert WORKERS.stats == {
        "workers/running": 2,
        "workers/parked": 2,  # one environment of worker 1, and worker 2
        "workers/restarts": 1,
        "workers/env_restarts": 5,
        "workers/steps": 165,
        "workers/oldest_version": 4,
        "fragments/produced": 15,
        "fragments/accepted": 10,
        "fragments/stale": 1,
        "fragments/rejected": 0,
        "fragments/lost": 2,
        "fragments/queued": 2,
        "receive_s": 3.0,
        "inference_s": 1.0,
        "send_s": 0.0,
        "hand_over_s": 0.0,
        "fragments_queue": 2.0,
    }


def test_lines_for_the_terminal():
    lines = WORKERS.overview().splitlines()
    assert lines[:2] == [
        "workers: 1 died, 1 parked, 2 running; versions 4 to 5; 1 restarts, 5 of environments",
        "fragments: 15 produced = 10 accepted + 1 stale + 0 rejected + 2 lost + 2 queued",
    ]
    assert lines[2:5] == [
        "worker 0 died: killed",
        "worker 1: environment 3 is parked: exited with code 3",
        "worker 2 parked: node lost",
    ]
    assert lines[6].split()[:3] == ["receive", "3.0", "75.0%"]
    assert lines[-1].startswith("75% of the time goes to the environments")


def test_ends_long_past_are_summed():
    one = WorkerStatus(
        "worker 0", "died", 9, 2, counts=counts(5, 4, lost=1), monitor=monitor(send=1), reason="one"
    )
    other = WorkerStatus(
        "worker 1", "died", 3, 4, env_restarts=2, counts=counts(2, 2), reason="two"
    )
    total = one.plus(other).plus(WorkerStatus("worker 2", "died", reason="three"))
    apart = Told([one, other, WorkerStatus("worker 2", "died")])
    assert Told([total]).stats == apart.stats
    assert (total.starts, total.reason) == (3, "three")
    assert Told([total]).overview().splitlines()[:2] == apart.overview().splitlines()[:2]


def test_lines_of_ends_are_few_and_the_last():
    died = [WorkerStatus(f"worker {n}", "died", reason=f"reason {n}") for n in range(9)]
    lines = Told(died).overview().splitlines()
    assert lines[2:5] == [f"worker {n} died: reason {n}" for n in (6, 7, 8)]
    assert lines[5].startswith("stage")


def test_workers_that_say_nothing():
    assert Told([]).stats == {}
    assert Told([]).overview() == ""
    assert "no version yet" in Told([WorkerStatus("worker 0")]).overview()


@pytest.mark.parametrize(("said", "shown"), [("workers: 2 running", True), ("", False)])
def test_the_lines_are_below_the_progress_bar(said, shown):
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with ProgressBar(console, 100, overview=lambda: said) as bar:
        bar.update(50)
    text = console.file.getvalue()
    assert ("workers: 2 running" in text) == shown
    assert "50/100 steps" in text
