"""Several workers in processes of this machine, put together by one function."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from functools import partial

import pytest
from waiting import until
from weighted_agent import WeightedAgent
from worker_setup import SEED, B, T, digests, make_sampler, ready

from parllel.agents import NumpyHandler
from parllel.cages import TrajInfo
from parllel.distributed.rollouts import (
    EnvWorker,
    EpisodeStatistics,
    FragmentSender,
    LocalRollouts,
    ProcessRollouts,
    ReplayBuffer,
    RolloutWorker,
    SynchronousSchedule,
)
from parllel.distributed.rollouts.on_this_machine import process_rollouts
from parllel.distributed.rollouts.on_this_machine.worker_process import Head
from parllel.errors import ClosedError, RestartsUsedUpError, WorkerTimeoutError, WrongStateError
from parllel.system.processes.pipe_end import PipeEnd
from parllel.system.processes.process_table import process_runs
from parllel.testing.dummy_envs import CountingEnv

WEIGHTS = WeightedAgent.weights


class Numbered(TrajInfo):
    """A TrajInfo of a script."""


def build(context, *, wrong=None, which="worker 1", handler=None):
    """Build a worker; that of the name `which` is wrong in some way."""
    wrong = wrong if context.name == which else None
    if wrong == "build":
        raise KeyError("unbuilt")
    if wrong == "exit":
        os._exit(3)
    if wrong == "kind":
        return "no worker"
    if wrong == "fetch":
        context.storage.fetch(1, 0.0)
    if wrong == "message":
        die_within_a_message()
    sender = FragmentSender(context.storage)
    context.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        SynchronousSchedule(make_sampler(NumpyHandler(WeightedAgent(4)), traj_info=Numbered)),
        fragment_length=T,
        seed=SEED,
        producer="another" if wrong == "name" else context.name,
        sender=sender,
        statistics=context.statistics,
        progress_handler={"turn": refuse, "hang": hang}.get(wrong),
    )


def refuse(step):
    raise KeyError("refused")


def die_within_a_message():
    """Kill this process in the middle of its third message of fragments."""
    write, kinds = PipeEnd.write, []

    def half(pipe, message, timeout_s):
        content = pickle.loads(message)
        if isinstance(content, Head):
            # One with many episodes is as long as fragments are, and is not counted.
            kinds.append(content.kind)
        elif kinds[-1] == "add" and kinds.count("add") == 3:
            # With its length before it, as a whole message has.
            os.write(pipe._fd, struct.pack("!i", len(message)) + message[: len(message) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(pipe, message, timeout_s)

    PipeEnd.write = half


def hang(step):
    time.sleep(100)


def look_until_it_raises(workers, buffer):
    # By the clock: a worker that goes on has fragments at once.
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        workers.check()
        buffer.fetch(1, 0.1)


def pid_of(workers, number):
    until(lambda: workers.statuses()[number].where)
    return int(workers.statuses()[number].where.removeprefix("pid "))


def test_fragments_are_those_of_threads():
    found = []
    for kind in (LocalRollouts, ProcessRollouts):
        with ReplayBuffer(64) as buffer, kind(build, 2, buffer, EpisodeStatistics()) as workers:
            workers.load_weights(WEIGHTS(7), 1)
            first = {"worker 0": [], "worker 1": []}
            while min(map(len, first.values())) < 3 * B:
                for fragment in buffer.fetch(2 * B, 20):
                    first[fragment.producer].append(fragment)
        found.append([digests(fragments, 3) for fragments in first.values()])
        assert set(first["worker 0"][0].agent.agent_info.weight.tolist()) == {7.0}
    assert found[0] == found[1]


def test_all_workers_act_with_the_weights_that_were_given_last():
    statistics = EpisodeStatistics()
    with ReplayBuffer(64) as buffer, ProcessRollouts(build, 2, buffer, statistics) as workers:
        assert [status.name for status in workers.statuses()] == ["worker 0", "worker 1"]
        assert {status.phase for status in workers.statuses()} == {"starting"}
        assert workers.load_weights(WEIGHTS(4), 4)
        assert not workers.load_weights(WEIGHTS(5), 4)
        fragments = buffer.fetch(2 * B, 20)
        assert {fragment.newest_version for fragment in fragments} == {4}
        assert workers.load_weights(WEIGHTS(5), 5)
        found = set()
        while found != {("worker 0", 5.0), ("worker 1", 5.0)}:
            fragments = buffer.fetch(2 * B, 20)
            for fragment in fragments:
                newest = fragment.env.version == 5
                found |= {
                    (fragment.producer, weight)
                    for weight in fragment.agent.agent_info.weight[newest].tolist()
                }
        workers.check()
        # Stopped, they still report.
        until(lambda: min(status.version for status in workers.statuses()) == 5)
    for status in workers.statuses():
        assert (status.phase, status.version) == ("ended", 5)
        assert status.counts["produced"] == sum(
            status.counts[name] for name in ("accepted", "stale", "rejected", "lost", "queued")
        )
        assert status.counts["queued"] == 0
    accepted = sum(status.counts["accepted"] for status in workers.statuses())
    assert accepted == buffer.counts()["added"]
    trajs = statistics.drain()
    assert trajs
    assert {type(traj) for traj in trajs} == {Numbered}
    workers.close()
    with pytest.raises(ClosedError, match="load_weights: the workers are closed"):
        workers.load_weights(WEIGHTS(6), 6)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ("build", KeyError, "unbuilt"),
        ("kind", TypeError, "expected a RolloutWorker, got 'no worker'"),
        ("name", ValueError, "producer=context.name, 'worker 1', got 'another'"),
        ("fetch", WrongStateError, "fetch: only the trainer's process can call this"),
    ],
)
def test_what_cannot_be_built_is_raised_and_all_are_closed(wrong, error, message):
    with ReplayBuffer(64) as buffer, pytest.raises(error, match=message):
        ProcessRollouts(partial(build, wrong=wrong), 3, buffer, EpisodeStatistics())


def test_what_ends_a_worker_is_raised_with_its_name():
    make = partial(build, wrong="turn")
    with (
        ReplayBuffer(64) as buffer,
        ProcessRollouts(make, 2, buffer, EpisodeStatistics()) as workers,
    ):
        workers.load_weights(WEIGHTS(1), 1)
        with pytest.raises(KeyError, match="refused") as caught:
            look_until_it_raises(workers, buffer)
        assert any("worker 1" in note for note in caught.value.__notes__)
        assert workers.statuses()[1].phase == "died"
        with pytest.raises(KeyError, match="refused"):
            workers.load_weights(WEIGHTS(2), 2)


def test_weights_that_do_not_fit_change_nothing():
    with (
        ReplayBuffer(64) as buffer,
        ProcessRollouts(build, 1, buffer, EpisodeStatistics()) as workers,
    ):
        with pytest.raises(ValueError, match="the weights of the worker's agent"):
            workers.load_weights({"model": {"weight": [1.0, 2.0]}}, 1)
        assert workers.load_weights(WEIGHTS(1), 1)
        assert {fragment.newest_version for fragment in buffer.fetch(B, 20)} == {1}


def status_of(workers, name):
    return {status.name: status for status in workers.statuses()}.get(name)


def runs(workers, name):
    status = status_of(workers, name)
    return status is not None and status.phase == "running" and status.steps > 0


def check_ledgers(workers, buffer):
    """Check that each fragment is accounted for once the workers have ended."""
    accepted = 0
    for status in workers.statuses():
        counts = status.counts
        assert counts.get("queued", 0) == 0
        ends = ("accepted", "stale", "rejected", "lost")
        assert counts.get("produced", 0) == sum(counts.get(name, 0) for name in ends)
        accepted += counts.get("accepted", 0)
    assert accepted == buffer.counts()["added"]


@pytest.mark.parametrize("how", ["killed", "in a message", "stopped", "while it waits for room"])
@pytest.mark.few(1)
def test_a_worker_that_dies_is_replaced_and_loses_no_fragment_that_was_handled(how):
    capacity = 6 if how == "while it waits for room" else 100_000
    make = partial(build, wrong="message" if how == "in a message" else None, which="worker 1")
    with (
        ReplayBuffer(capacity) as buffer,
        ProcessRollouts(make, 2, buffer, EpisodeStatistics(), timeout_s=30.0) as workers,
    ):
        workers.load_weights(WEIGHTS(3), 3)
        if how == "while it waits for room":
            until(lambda: buffer.prepared() == capacity)
        if how == "stopped":
            for worker in workers._workers:
                worker._process.timeout_s = 1.0
            # The wait that goes on has the old limit; the next begins with the next request.
            time.sleep(0.6)
        if how != "in a message":
            stop = signal.SIGSTOP if how == "stopped" else signal.SIGKILL
            os.kill(pid_of(workers, 1), stop)
        fragments = []

        def replaced():
            workers.check()
            # Until the second start has had room for some.
            fragments.extend(buffer.fetch(1, 0.1))
            return runs(workers, "worker 1, start 2") and fragments[-1].producer.endswith("start 2")

        until(replaced)
        died = status_of(workers, "worker 1")
        assert died.phase == "died"
        assert (
            "did not answer within" in died.reason if how == "stopped" else "SIGKILL" in died.reason
        )
        assert not process_runs(int(died.where.removeprefix("pid ")))
        assert status_of(workers, "worker 0").phase == "running"
        workers.close()
        check_ledgers(workers, buffer)
        if how == "in a message":
            # Those in the message, which was half written.
            assert status_of(workers, "worker 1").counts["lost"] >= 1
        left = buffer.prepared()
        fragments += buffer.fetch(left, 1) if left else []
        by_worker = {status.name: status.counts["accepted"] for status in workers.statuses()}
        assert by_worker == {
            name: sum(fragment.producer == name for fragment in fragments) for name in by_worker
        }
        # With the weights that were published before it began.
        again = [one for one in fragments if one.producer.endswith("start 2")]
        assert {fragment.newest_version for fragment in again} == {3}
        assert workers.stats["workers/restarts"] == 1


def test_a_worker_that_dies_too_often_is_parked_and_the_others_continue():
    with ReplayBuffer(64) as buffer:
        make = partial(build, wrong="exit")
        with pytest.warns(RuntimeWarning, match=r"worker 1 is parked(.|\n)*exited with code 3"):
            workers = ProcessRollouts(make, 2, buffer, EpisodeStatistics(), restarts=0)
        with workers:
            workers.load_weights(WEIGHTS(1), 1)
            assert {one.producer for one in buffer.fetch(2 * B, 20)} == {"worker 0"}
            os.kill(pid_of(workers, 0), signal.SIGKILL)
            with (
                pytest.warns(RuntimeWarning, match="worker 0 is parked"),
                pytest.raises(RestartsUsedUpError, match="all workers are parked: worker 0"),
            ):
                look_until_it_raises(workers, buffer)
            check_ledgers(workers, buffer)


def test_what_a_later_start_raises_counts_against_its_budget():
    make = partial(build, wrong="turn", which="worker 1, start 2")
    with (
        ReplayBuffer(64) as buffer,
        ProcessRollouts(make, 2, buffer, EpisodeStatistics()) as workers,
    ):
        workers.load_weights(WEIGHTS(1), 1)
        buffer.fetch(B, 20)
        os.kill(pid_of(workers, 1), signal.SIGKILL)
        with pytest.warns(
            RuntimeWarning, match="worker 1, start 2 raised, and is started again: 'refused'"
        ):
            until(
                lambda: (
                    workers.check() or (buffer.fetch(1, 0.1) and runs(workers, "worker 1, start 3"))
                )
            )
        assert [status.phase for status in workers.statuses()].count("died") == 2


def test_environments_that_leak_are_replaced_in_a_process_too():
    with (
        ReplayBuffer(64) as buffer,
        ProcessRollouts(build_leaking, 1, buffer, EpisodeStatistics(), restarts=0) as workers,
    ):
        workers.load_weights(WEIGHTS(1), 1)
        until(
            lambda: (
                workers.check() or (buffer.fetch(1, 0.1) and workers.stats["workers/env_restarts"])
            )
        )


def build_leaking(context):
    env = EnvWorker(partial(CountingEnv, 3), seed=SEED, most_steps=10)
    sender = FragmentSender(context.storage)
    context.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        ready([env], NumpyHandler(WeightedAgent(4))),
        fragment_length=T,
        seed=SEED,
        producer=context.name,
        sender=sender,
    )


def test_a_turn_that_hangs_is_killed_when_the_run_is_closed(monkeypatch):
    monkeypatch.setattr(process_rollouts, "_MAX_END_S", 0.5)
    make = partial(build, wrong="hang")
    with ReplayBuffer(64) as buffer:
        workers = ProcessRollouts(make, 2, buffer, EpisodeStatistics())
        workers.load_weights(WEIGHTS(1), 1)
        pid = pid_of(workers, 1)
        until(lambda: workers.statuses()[0].steps > 0)
        with pytest.raises(
            WorkerTimeoutError, match=r"worker 1: its turn did not end within 0\.5 s"
        ):
            workers.close()
        assert not process_runs(pid)
        workers.close()
        assert workers.statuses()[0].phase == "ended"


def test_a_closed_buffer_ends_the_workers():
    with (
        ReplayBuffer(64) as buffer,
        ProcessRollouts(build, 1, buffer, EpisodeStatistics()) as workers,
    ):
        workers.load_weights(WEIGHTS(1), 1)
        buffer.close()
        until(lambda: workers.statuses()[0].phase == "died")
        with pytest.raises(ClosedError, match="the buffer is closed"):
            workers.check()


def test_wrong_arguments():
    with ReplayBuffer(1) as buffer:
        with pytest.raises(ValueError, match="n_workers: expected at least 1, got 0"):
            ProcessRollouts(build, 0, buffer, EpisodeStatistics())
        with pytest.raises(ValueError, match="start_method"):
            ProcessRollouts(build, 1, buffer, EpisodeStatistics(), start_method="thread")
        with pytest.raises(ValueError, match="ProcessRollouts: timeout_s"):
            ProcessRollouts(build, 1, buffer, EpisodeStatistics(), timeout_s=-1)
        with pytest.raises(
            ValueError, match="ProcessRollouts: restarts: expected 0 or more, got -1"
        ):
            ProcessRollouts(build, 1, buffer, EpisodeStatistics(), restarts=-1)


def test_workers_end_with_the_trainers_process(tmp_path):
    code = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from test_process_rollouts import EpisodeStatistics, ProcessRollouts, ReplayBuffer, WEIGHTS, build
from test_process_rollouts import pid_of
if __name__ == "__main__":
    workers = ProcessRollouts(build, 2, ReplayBuffer(64), EpisodeStatistics())
    workers.load_weights(WEIGHTS(1), 1)
    print(pid_of(workers, 0), pid_of(workers, 1), flush=True)
    time.sleep(100)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as program:
        pids = [int(word) for word in program.stdout.readline().split()]
        assert len(pids) == 2
        program.kill()
        until(lambda: not any(map(process_runs, pids)))
