"""What workers of a SynchronizedProcessCage say when they fail, and who waits for whom meanwhile."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest
from cage_makers import begin, forked, synchronized

from parllel.buffers import NamedTuple, Samples
from parllel.cages import SynchronizedProcessCage
from parllel.errors import ClosedError, WorkerTimeoutError, WorkerTracebackError
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_faults_contract import (
    WITHIN_S,
    set_timeout,
    wait_until_gone,
    within,
)
from parllel.testing.cages.cage_hooks import run, run_groups
from parllel.testing.transform_samples import allocate_numbers
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
    return synchronized(factories, **options)


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
        begin(cage)
        with within(), pytest.raises(expected, match=text) as caught:
            run_groups(cage, "start_row", 0)
        cause = caught.value.__cause__
        assert isinstance(cause, WorkerTracebackError)
        assert 20_000 < len(str(cause)) < 2**16 + 200
        assert "in step_row" in str(cause)
        assert all(wait_until_gone(pid) for pid in pids)


@pytest.mark.parametrize("fault", ["recursion", "1000000"])
def test_a_worker_that_failed_meanwhile_is_not_waited_for(fault: str) -> None:
    """It fails in a reset ahead of time, so nobody reads; a long request follows."""
    with make(fault, "second reset", reset_automatically=False) as cage:
        begin(cage)
        run_groups(cage, "start_row", 0)
        said = r"maximum recursion|begin"
        with within(), pytest.raises((RecursionError, ValueError), match=said):  # noqa: PT012
            run(cage, "start_row", 1)
            cage.weights = bytes(10**7)


def large_buffer(n: int) -> Samples:
    """Return samples with thousands of leaves, which take long to introduce."""
    env_info = NamedTuple(**{f"leaf_number_{i}": np.float32(0) for i in range(3000)})
    return allocate_numbers(
        BatchSpec(T, n),
        observation=np.float32(0),
        agent_info=None,
        env_info=env_info,
        storage="managed",
    )


SOUND: dict[str, Any] = {
    "SynchronizedProcessCage": partial(synchronized, [CountingEnv] * N),
    "ProcessCage": partial(forked, CountingEnv),
}


@pytest.mark.parametrize("kind", SOUND)
def test_a_buffer_is_not_introduced_for_longer_than_agreed(kind: str) -> None:
    samples = large_buffer(N)
    with SOUND[kind]() as cage:
        _ = cage.spaces
        pid = cage.pids[1] if kind == "SynchronizedProcessCage" else cage.pid
        os.kill(pid, signal.SIGSTOP)
        set_timeout(cage, TIMEOUT_S)
        with (
            within(WITHIN_S + TIMEOUT_S),
            pytest.raises(WorkerTimeoutError, match=rf"process {pid} did not .*within 0.3 s"),
        ):
            cage.set_samples_buffer(samples, slice(0, cage.n))
        assert wait_until_gone(pid)
        with pytest.raises(ClosedError, match="ended after WorkerTimeoutError"):
            cage.start_reset()
