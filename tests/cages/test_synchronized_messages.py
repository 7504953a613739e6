"""What workers of a SynchronizedProcessCage say when they fail, and who waits for whom meanwhile."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from parllel.buffers import AgentSamples, EnvSamples, Field, NamedTuple, Samples, allocate
from parllel.cages import ProcessCage, SynchronizedProcessCage
from parllel.errors import ClosedError, WorkerTimeoutError, WorkerTracebackError
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_faults_contract import WITHIN_S, set_timeout, wait_until_gone
from parllel.testing.cages.cage_hooks import run_groups
from parllel.testing.cages.row_reference import make_samples
from parllel.types import BatchSpec

T, N = 4, 4
FAILING = 2  # the column
TIMEOUT_S = 0.3


class TalkativeEnv(CountingEnv):
    """Says a lot when it fails: in its second reset, or in its first step."""

    def __init__(self, fault: str, phase: str, **options: Any) -> None:
        super().__init__(**options)
        self._fault, self._phase, self._resets = fault, phase, 0

    def reset(self, **options: Any) -> Any:
        self._resets += 1
        if self._phase == "second reset" and self._resets == 2:
            self._fail()
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        if self._phase == "step":
            self._fail()
        return super().step(action)

    def _fail(self) -> None:
        if self._fault == "recursion":
            names = [f"step_{i}_of_a_function_that_has_a_rather_long_name" for i in range(60)]
            lines = [
                f"def {n}(): {m}()" for n, m in zip(names, [*names[1:], names[0]], strict=True)
            ]
            exec(compile("\n".join([*lines, f"{names[0]}()"]), "deep.py", "exec"), {})
        raise ValueError("begin" + "x" * int(self._fault) + "end")


def make(fault: str, phase: str, **options: Any) -> SynchronizedProcessCage:
    factories: list[Any] = [partial(CountingEnv, 2)] * N
    factories[FAILING] = partial(TalkativeEnv, fault, phase, lengths=2)
    settings = {"n_workers": 2, "start_method": "fork", "timeout_s": 20.0}
    return SynchronizedProcessCage(factories, seeds=range(N), **{**settings, **options})


def bind(cage: SynchronizedProcessCage) -> None:
    cage.set_samples_buffer(make_samples(CountingEnv(), T, N, storage="managed"), slice(0, N))
    run_groups(cage, "start_reset", 0)


@pytest.mark.parametrize(
    ("fault", "expected", "text"),
    [
        ("recursion", RecursionError, "maximum recursion depth"),
        ("60000", ValueError, "beginx+end"),
        ("1000000", ValueError, r"(?s)beginx+\n.* characters are left out .*\nx+end"),
    ],
)
def test_a_long_message_arrives_at_once(fault: str, expected: type[Exception], text: str) -> None:
    with make(fault, "step") as cage:
        pids = cage.pids
        bind(cage)
        began = time.monotonic()
        with pytest.raises(expected, match=text) as caught:
            run_groups(cage, "start_row", 0)
        assert time.monotonic() - began < WITHIN_S
        cause = caught.value.__cause__
        assert isinstance(cause, WorkerTracebackError)
        assert 20_000 < len(str(cause)) < 2**16 + 200
        assert "in step_row" in str(cause)
        assert all(wait_until_gone(pid) for pid in pids)


@pytest.mark.parametrize("fault", ["recursion", "1000000"])
def test_a_worker_that_failed_meanwhile_is_not_waited_for(fault: str) -> None:
    """It fails in a reset ahead of time, so nobody reads; a long request follows."""
    with make(fault, "second reset", reset_automatically=False) as cage:
        bind(cage)
        run_groups(cage, "start_row", 0)
        began = time.monotonic()
        with pytest.raises((RecursionError, ValueError), match=r"maximum recursion|begin"):  # noqa: PT012
            cage.start_row(1)
            cage.finish_row()
            cage.weights = bytes(10**7)
        assert time.monotonic() - began < WITHIN_S


def large_buffer(n: int) -> Samples:
    """Return samples with thousands of leaves, which take long to introduce."""
    env_info = NamedTuple(**{f"leaf_number_{i}": np.float32(0) for i in range(3000)})
    flag, action = np.bool_(False), np.int64(0)
    env = EnvSamples(
        observation=Field(np.float32(0), padding=1),
        reward=np.float32(0),
        terminated=flag,
        truncated=flag,
        done=flag,
        env_info=env_info,
    )
    agent = AgentSamples(action=action, agent_info=None)
    return allocate(Samples(agent=agent, env=env), BatchSpec(T, n), storage="managed")  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["SynchronizedProcessCage", "ProcessCage"])
def test_a_buffer_is_not_introduced_for_longer_than_agreed(kind: str) -> None:
    samples = large_buffer(N)
    with sound(kind) as cage:
        _ = cage.spaces
        pid = cage.pids[1] if kind == "SynchronizedProcessCage" else cage.pid
        os.kill(pid, signal.SIGSTOP)
        set_timeout(cage, TIMEOUT_S)
        began = time.monotonic()
        with pytest.raises(WorkerTimeoutError, match=rf"process {pid} did not .*within 0.3 s"):
            cage.set_samples_buffer(samples, slice(0, cage.n))
        assert time.monotonic() - began < WITHIN_S + TIMEOUT_S
        assert wait_until_gone(pid)
        with pytest.raises(ClosedError, match="ended after WorkerTimeoutError"):
            cage.start_reset()


def sound(kind: str) -> Any:
    if kind == "ProcessCage":
        return ProcessCage(CountingEnv, start_method="fork")
    return SynchronizedProcessCage([CountingEnv] * N, n_workers=2, start_method="fork")
