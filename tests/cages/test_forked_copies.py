"""Forked copies of a process touch all that belongs to its workers, and change nothing for them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from cage_makers import bind, synchronized
from waiting import until

from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import PendingRows, ProcessCage, SynchronizedProcessCage
from parllel.errors import ClosedError, WorkerDiedError
from parllel.samplers import AsynchronousSampler, BasicSampler, EvalSampler, Sampler
from parllel.system.processes import Program
from parllel.system.processes.process_table import process_runs
from parllel.testing import CountingEnv
from parllel.testing.cages.cage_hooks import run
from parllel.types import BatchSpec
from parllel_patterns import allocate_eval_samples, allocate_samples

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
SPEC = BatchSpec(T=6, B=4)
COPIES = 12
WAIT_S = 20.0
Touch = Callable[[], Any]


def in_a_copy(*touches: Touch, leave: Callable[[], Any] | None = None) -> list[str]:
    """Return what each call does in a forked copy of this process; the copy then leaves by `leave`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps([said(touch) for touch in touches]).encode())
            os.close(writing)
            if leave is not None:
                leave()
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        found = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    told: list[str] = json.loads(found)
    return told


def said(touch: Touch) -> str:
    try:
        signal.alarm(int(WAIT_S))  # the copy hangs in nothing
        return f"returned {touch()!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)


def check_refused(found: list[str], name: str) -> None:
    expected = f"ClosedError: {name}"
    wrong = [
        one
        for one in found
        if not one.startswith(expected)
        or f"belongs to process {os.getpid()}, of which this process, " not in one
    ]
    assert not wrong, wrong


def workers(method: str = "fork") -> SynchronizedProcessCage:
    return synchronized([partial(CountingEnv, 3)] * SPEC.B, start_method=method)


def process(method: str = "fork") -> ProcessCage:
    return ProcessCage(partial(CountingEnv, 3), seed=1, start_method=method, timeout_s=WAIT_S)


def touches_of(cage: Any, samples: Any, columns: slice) -> list[Touch]:
    """Return calls of everything public that a cage with processes has."""

    def set_it() -> None:
        cage.render_mode = 3

    found: list[Touch] = [
        lambda: cage.render_mode,
        set_it,
        lambda: cage.env_method("render"),
        lambda: cage.set_samples_buffer(samples, columns),
        lambda: cage.use_batch(0),
        lambda: cage.start_reset(0),
        lambda: cage.start_row(0),
        lambda: cage.start_random_row(0),
        lambda: cage.start_decorrelation([1] * cage.n),
        lambda: cage.awaited(),
        lambda: cage.row_done(),
        lambda: PendingRows[str]().add("row", cage),
        cage.finish_row,
        cage.collect_completed_trajs,
        cage.collect_final_observations,
        cage.environment_states,
        lambda: cage.load_environment_states([{}] * cage.n, 0),
        cage.check_open,
    ]
    if isinstance(cage, ProcessCage):
        found += [cage.reset_async, lambda: cage.step_async(0), cage.random_step_async]
        found += [cage.await_step, cage.start_environment_states]
    else:
        found += [lambda: cage.set_policy(lambda: None), lambda: cage.start_rollout(1)]
    return found


def record(cage: Any, samples: Any, rows: range) -> list[bytes]:
    found = []
    for t in rows:
        run(cage, "start_row", t)
        found += [np.asarray(leaf[t]).tobytes() for leaf in (samples.env.reward, samples.env.done)]
        found.append(np.asarray(samples.env.observation[t + 1]).tobytes())
    return found


@pytest.mark.parametrize(("make", "method"), [(workers, "forkserver"), (process, "fork")])
@pytest.mark.few(1)
def test_copies_of_a_cage_touch_nothing(make: Callable[[str], Any], method: str) -> None:
    with make(method) as cage, make(method) as alone:
        bound = []
        for one in (cage, alone):
            samples = bind(one, T=COPIES)
            run(one, "start_reset", 0)
            bound.append(samples)
        touches = touches_of(cage, bound[0], slice(0, cage.n))
        for t in range(COPIES):
            found = in_a_copy(*touches, leave=cage.close)
            check_refused(found, "cage ")
            rows = range(t, t + 1)
            assert record(cage, bound[0], rows) == record(alone, bound[1], rows)
        assert len(cage.collect_completed_trajs()) == len(alone.collect_completed_trajs()) > 3


@pytest.mark.parametrize("make", [workers, process])
@pytest.mark.few(1)
def test_copies_in_the_middle_of_a_row_touch_nothing(make: Callable[[], Any]) -> None:
    with make() as cage:
        bind(cage, T=SPEC.T)
        run(cage, "start_reset", 0)
        for t in range(SPEC.T):
            cage.start_row(t)
            awaited: PendingRows[str] = PendingRows()
            awaited.add("row", cage)
            found = in_a_copy(
                cage.finish_row, cage.row_done, lambda: cage.render_mode, leave=cage.close
            )
            check_refused(found, "cage ")
            # A copy's wait does not take what was to wake its owner.
            in_a_copy(partial(awaited.wait, 0.2))
            assert awaited.wait(WAIT_S) == ["row"]
            cage.finish_row()


def test_copies_of_a_cage_that_is_being_made_wait_for_nothing() -> None:
    with workers() as cage, process() as other:
        found = in_a_copy(lambda: cage.spaces, lambda: other.spaces, lambda: cage.render_mode)
        check_refused(found, "cage ")
        assert cage.spaces == other.spaces


def build() -> Sampler:
    cage = workers()
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
    return BasicSampler(SPEC, [cage], handler, allocate_samples([cage], SPEC, handler))


def build_eval() -> Sampler:
    cage = workers()
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
    return EvalSampler([cage], handler, allocate_eval_samples([cage]), SPEC.B)


def build_asynchronous() -> AsynchronousSampler:
    return AsynchronousSampler(build, timeout_s=WAIT_S, start_method="fork")


def batch_of(sampler: Sampler) -> list[bytes]:
    samples, trajs = sampler.collect_batch(0)
    env = samples.env
    leaves = env.observation, env.reward, samples.agent.action
    return [*(np.asarray(leaf[:]).tobytes() for leaf in leaves), repr(trajs).encode()]


@pytest.mark.parametrize("make", [build, build_eval, build_asynchronous])
@pytest.mark.few(1)
def test_copies_of_a_sampler_touch_nothing(make: Callable[[], Any]) -> None:
    with make() as sampler, make() as alone:
        assert batch_of(sampler) == batch_of(alone)
        for _ in range(COPIES):
            samples = sampler.collect_batch(0)[0]
            before = np.asarray(samples.agent.action[:]).tobytes()
            found = in_a_copy(lambda: sampler.collect_batch(0), leave=sampler.close)
            check_refused(found, "")
            assert np.asarray(samples.agent.action[:]).tobytes() == before
            alone.collect_batch(0)
        assert batch_of(sampler) == batch_of(alone)


@pytest.fixture
def echo() -> Iterator[Program]:
    with Program([sys.executable, "-uc", "for line in open(0): print(line, end='')"]) as program:
        yield program


def test_copies_of_a_program_touch_nothing(echo: Program) -> None:
    for i in range(COPIES):
        echo.write(b"mine %d\n" % i)
        touches: list[Touch] = [
            partial(echo.write, b"theirs\n"),
            partial(echo.read_line, 1.0),
            partial(echo.try_read_line, 0.1),
        ]
        check_refused(in_a_copy(*touches, leave=echo.close), echo.name)
        found = in_a_copy(echo.close_input, echo.terminate, echo.kill, partial(echo.wait, 0.01))
        assert found == ["returned None"] * 4
        assert echo.read_line(WAIT_S) == b"mine %d" % i


def test_a_copy_that_leaves_by_itself_ends_nothing() -> None:
    """Exit functions and collected objects of a copy end no workers, and take no exit codes."""

    def leave() -> None:
        import atexit
        import gc
        import multiprocessing

        multiprocessing.active_children()
        gc.collect()
        with contextlib.suppress(
            AssertionError
        ):  # multiprocessing's own, about children of the owner
            atexit._run_exitfuncs()

    cage = process("forkserver")
    with cage:
        assert cage.render_mode is not None
        os.kill(cage.pid, signal.SIGSTOP)
        assert in_a_copy(leave=leave) == []
        os.kill(cage.pid, signal.SIGCONT)
        cage.reset_async()
        cage.await_step()
        os.kill(cage.pid, signal.SIGKILL)
        until(lambda: not process_runs(cage.pid))
        assert in_a_copy(leave=leave) == []
        with pytest.raises(WorkerDiedError, match="was killed by SIGKILL"):
            reset(cage)


def reset(cage: ProcessCage) -> None:
    cage.reset_async()
    cage.await_step()


def test_a_copy_makes_workers_of_its_own() -> None:
    def play() -> str:
        with process() as own:
            own.reset_async()
            return str(own.await_step().observation.tolist())

    with process() as cage:
        cage.reset_async()
        first = str(cage.await_step().observation.tolist())
        assert in_a_copy(play) == [f"returned {first!r}"]
        cage.close()
        with pytest.raises(ClosedError, match="after close"):
            cage.reset_async()
