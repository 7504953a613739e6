from __future__ import annotations

import os
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from asynchronous_parts import (
    FOUR,
    WITHIN_S,
    SlowEnv,
    WeightedAgent,
    WeightedSetup,
    asynchronous,
    compiled_before,
)
from python_code import run_code
from sampler_cages import FORKED, synchronized, with_cages
from waiting import until

from parllel.buffers import conversation
from parllel.errors import ClosedError, WorkerDiedError, WorkerTimeoutError, WorkerTracebackError
from parllel.samplers import AsynchronousSampler, BasicSampler
from parllel.system.processes.process_table import process_runs
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import DummyFaultError, FaultyEnv
from parllel.testing.holdings import working_processes
from parllel.testing.sampler_setup import SamplerSetup

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
__all__ = ["compiled_before"]

TRIALS = 20
CAGES = {
    "here": lambda setup: setup,
    "one worker each": lambda setup: SamplerSetup(
        setup.T, setup.factories, storage="managed", **FORKED
    ),
    "shared workers": lambda setup: with_cages(setup, synchronized(2)),
}


def with_fault(*arguments, T=4, cages="here", **options):
    factories = (CountingEnv, partial(FaultyEnv, *arguments, lengths=20, **options))
    return CAGES[cages](SamplerSetup(T, factories))


def collect_for_ever(sampler):
    while True:
        sampler.collect_batch(0)


def assert_ended(sampler):
    assert not process_runs(sampler.pid)
    with pytest.raises(ClosedError, match="sampling process: ended after"):
        sampler.collect_batch(0)
    sampler.close()


def fail_to_build():
    raise LookupError("no such simulator")


# ---------------------------------------------------------------------- what is raised there


def test_what_build_raises_arrives_as_itself():
    with AsynchronousSampler(fail_to_build, start_method="fork") as sampler:
        with pytest.raises(LookupError, match="no such simulator") as caught:
            sampler.collect_batch(0)
        assert isinstance(caught.value.__cause__, WorkerTracebackError)
        assert "while the sampler was built" in str(caught.value.__cause__)
        assert "fail_to_build" in str(caught.value.__cause__)
        assert_ended(sampler)


@pytest.mark.parametrize("method", ["stats", "state", "publish"])
def test_it_arrives_wherever_the_sampler_is_asked_first(method):
    agent = WeightedAgent()
    with AsynchronousSampler(fail_to_build, agent=agent, start_method="fork") as sampler:
        if method == "publish":  # which needs no answer
            assert sampler.publish() == 0
        with pytest.raises(LookupError, match="no such simulator"):
            sampler.state() if method == "state" else sampler.stats
        assert_ended(sampler)


def test_build_must_return_a_sampler():
    with (
        AsynchronousSampler(dict, start_method="fork") as sampler,
        pytest.raises(TypeError, match="build: expected it to return a Sampler, got dict"),
    ):
        sampler.collect_batch(0)


@pytest.mark.parametrize("cages", CAGES)
@pytest.mark.parametrize("fault", ["raise", "broken_pipe"])
@pytest.mark.few(3)
def test_what_an_environment_raises_in_a_batch_ahead_comes_with_the_next(cages, fault):
    error = {"raise": DummyFaultError, "broken_pipe": BrokenPipeError}[fault]
    with asynchronous(with_fault("step", fault, number=6, cages=cages)) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(error, match=r"number 6 failed|hung up") as caught:
            sampler.collect_batch(8)
        assert "during batch 2" in str(caught.value.__cause__)
        assert_ended(sampler)


def test_an_error_that_nobody_asks_for_does_not_come_up_when_closing():
    with asynchronous(with_fault("step", number=6)) as sampler:
        sampler.collect_batch(0)


def test_what_closing_raises_comes_when_all_has_ended():
    sampler = asynchronous(with_fault("close"))
    sampler.collect_batch(0)
    with pytest.raises(DummyFaultError, match="close number 1 failed"):
        sampler.close()
    assert not process_runs(sampler.pid)
    sampler.close()


@pytest.mark.parametrize(
    ("fault", "text"),
    [("kill", "was killed by SIGKILL"), ("exit", "exited with code 3"), ("segfault", "SIGSEGV")],
)
def test_a_process_that_ends_in_an_environment(fault, text):
    with asynchronous(with_fault("step", fault, number=6)) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(
            WorkerDiedError, match=f"sampling process: process .*{text}.* during batch 2"
        ):
            sampler.collect_batch(8)
        assert_ended(sampler)


def test_a_worker_of_the_sampling_process_that_dies():
    with asynchronous(with_fault("step", "kill", number=6, cages="shared workers")) as sampler:
        sampler.collect_batch(0)
        with pytest.raises(WorkerDiedError, match="was killed by SIGKILL"):
            sampler.collect_batch(8)
        assert_ended(sampler)


# ---------------------------------------------------------------------- kills


@pytest.mark.parametrize("cages", CAGES)
@pytest.mark.few(1)
def test_a_process_killed_at_any_moment_gives_a_clear_error(cages):
    moments, others = random.Random(cages), working_processes()
    for _ in range(TRIALS):
        killed = []
        sampler = asynchronous(CAGES[cages](SamplerSetup(3, FOUR)))
        pid = sampler.pid

        def kill(pid=pid, killed=killed):
            os.kill(pid, signal.SIGKILL)
            killed.append(time.monotonic())

        timer = threading.Timer(moments.uniform(0.0, 0.08), kill)
        timer.start()
        with sampler, pytest.raises(WorkerDiedError, match=f"process {pid} was killed by SIGKILL"):
            collect_for_ever(sampler)
        noticed = time.monotonic()
        timer.join()
        assert noticed - killed[0] < WITHIN_S
        assert_all_gone(others)


def assert_all_gone(others):
    """Wait for the descendants of a killed process, all but others: the kernel ends them."""
    known = {entry.pid for entry in others}
    until(lambda: all({entry.pid, entry.parent} & known for entry in working_processes()))


def test_a_process_stopped_before_it_reads_its_weights():
    agent = WeightedAgent()
    with asynchronous(WeightedSetup(3, FOUR), agent=agent, timeout_s=2.0) as sampler:
        sampler.collect_batch(0)
        sampler.load_state(sampler.state())  # nothing is under way
        os.kill(sampler.pid, signal.SIGSTOP)
        sampler._begin(0)
        with pytest.raises(WorkerTimeoutError, match=r"within 2 s to begin batch 3"):
            sampler.publish()
        assert_ended(sampler)


# ---------------------------------------------------------------------- closing in the middle


@pytest.mark.parametrize("cages", CAGES)
def test_close_in_the_middle_of_a_batch(cages):
    factories, others = (CountingEnv, partial(SlowEnv, 0.02)), working_processes()
    sampler = asynchronous(CAGES[cages](SamplerSetup(4, factories)))
    sampler.collect_batch(0)
    sampler.close()  # 80 ms of the next batch are still to come
    assert not process_runs(sampler.pid)
    assert_all_gone(others)


def test_close_while_an_environment_hangs(monkeypatch):
    monkeypatch.setattr(conversation, "CLOSE_S", 0.3)
    sampler = asynchronous(with_fault("step", "hang_in_c", number=6))
    sampler.collect_batch(0)
    sampler.close()
    assert not process_runs(sampler.pid)


def test_ctrl_c_while_waiting_ends_everything():
    class Interrupted(BasicSampler):
        def collect_batch(self, elapsed_steps):
            os.kill(os.getppid(), signal.SIGINT)
            time.sleep(WITHIN_S)

    with asynchronous(SamplerSetup(3, FOUR), Interrupted) as sampler:
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            sampler.collect_batch(0)
        assert_ended(sampler)


SCRIPT = """
import os, signal, sys
sys.path[:0] = {folders!r}
from asynchronous_parts import FOUR, asynchronous
from sampler_cages import synchronized, with_cages
from parllel.system.processes.process_table import descendants
from parllel.testing.sampler_setup import SamplerSetup

sampler = asynchronous(with_cages(SamplerSetup(3, FOUR), synchronized(2)))
sampler.collect_batch(0)
print(*[entry.pid for entry in descendants(os.getpid())], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_outlives_its_parent():
    here = Path(__file__).parent
    script = SCRIPT.format(folders=[str(here), str(here.parent / "support")])
    done = run_code(script, timeout=50)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) >= 3
    until(lambda: not any(map(process_runs, pids)))
