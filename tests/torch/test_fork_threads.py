"""Forks beside the threads of torch, which they lack."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from parllel import BatchSpec
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import SynchronizedProcessCage
from parllel.errors import WorkerTimeoutError
from parllel.system.processes.child import Child
from parllel.testing import CountingEnv
from parllel_patterns import allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def busy_sum() -> float:
    """Return what takes several threads where there are some."""
    return float((torch.ones(1000, 1000) + 1).exp().mean().log())


@pytest.fixture
def torch_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    busy_sum()  # starts them
    yield
    torch.set_num_threads(before)


def compute(connection: Connection) -> None:
    connection.send_bytes(f"{torch.get_num_threads()} {busy_sum():.3f}".encode())


def test_a_fork_computes_beside_threads_of_torch(torch_threads: None) -> None:
    child = Child(compute, start_method="fork")
    assert child.receive(10.0, "computing") == b"1 2.000"
    child.end()
    assert torch.get_num_threads() == 4


LOCK = threading.Lock()


class LockedEnv(CountingEnv):
    """Waits in its reset for what a thread of the parent held."""

    def reset(self, **kwargs: Any) -> Any:
        with LOCK:
            return super().reset(**kwargs)


def reset_all(cage: SynchronizedProcessCage) -> None:
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=1))
    cage.set_samples_buffer(allocate_samples([cage], BatchSpec(1, 1), handler), slice(0, 1))
    cage.start_reset()
    cage.finish_row()


def lock_up(connection: Connection) -> None:
    with LOCK:
        pass


@pytest.fixture
def thread_with_lock() -> Iterator[None]:
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        with LOCK:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    yield
    release.set()
    thread.join()


@pytest.mark.usefixtures("thread_with_lock")
def test_the_time_out_of_a_fork_says_what_it_may_wait_for() -> None:
    text = (
        r'did not answer within 0\.2 s .*; it was forked while \d+ other threads ran.*="forkserver"'
    )
    child = Child(lock_up, start_method="fork")
    with pytest.raises(WorkerTimeoutError, match=text):
        child.receive(0.2, "waiting")
    child.kill()
    cage = SynchronizedProcessCage([LockedEnv], n_workers=1, timeout_s=0.2, start_method="fork")
    with pytest.raises(WorkerTimeoutError, match=text):
        reset_all(cage)
    cage.close()
