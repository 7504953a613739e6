"""What happens to a ProcessCage when its environment or its process fails."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from typing import Any

import pytest
from cage_makers import bind, forked
from waiting import alarm

from parllel.buffers import conversation
from parllel.cages import Cage
from parllel.errors import ClosedError, WorkerDiedError
from parllel.testing import CountingEnv, FaultyEnv
from parllel.testing.cages.cage_faults_contract import CageFaultsContract, wait_until_gone, within
from parllel.testing.cages.cage_hooks import notes_of, run
from parllel.testing.cages.cage_kinds import MakesProcessCage
from parllel.testing.cages.row_reference import (
    assert_same_tree,
    draw_actions,
    make_samples,
    plain,
    simulate,
)
from parllel.testing.faulty_envs import PHASES, CrowdedEnv, DummyFaultError


@pytest.mark.few(12)
class TestFaults(MakesProcessCage, CageFaultsContract):
    # Under another start method, and those faults that its own code tells apart; a SynchronizedProcessCage,
    # with which it shares the rest, meets all of them in its tests.
    start_method = "forkserver"

    @pytest.mark.parametrize("phase", PHASES)
    @pytest.mark.parametrize(
        "fault", ["attribute_error", "broken_pipe", "system_exit", "kill", "hang"]
    )
    def test_faults_of_an_environment(self, fault: str, phase: str) -> None:
        super().test_faults_of_an_environment(fault, phase)


def test_each_of_several_failures_is_reported_and_the_siblings_live_on() -> None:
    T, actions = 6, draw_actions(CountingEnv().action_space, 0, 1, 6)[0]
    factories = [
        partial(CountingEnv, 4),
        partial(FaultyEnv, "step", "raise", number=3, lengths=4),
        partial(FaultyEnv, "step", "segfault", number=3, lengths=4),
        partial(FaultyEnv, "step", "exit", number=3, lengths=4),
        partial(CountingEnv, 4),
    ]
    samples = make_samples(CountingEnv(), T, len(factories), storage="managed")
    cages = [forked(factory, index=i, seed=i) for i, factory in enumerate(factories)]
    for i, cage in enumerate(cages):
        cage.set_samples_buffer(samples, slice(i, i + 1))
        run(cage, "start_reset", 0)
    errors: dict[int, Exception] = {}
    for t, action in enumerate(actions):
        samples.agent.action[t] = action
        going = [(i, cage) for i, cage in enumerate(cages) if i not in errors]
        for _, cage in going:
            cage.start_row(t)
        for i, cage in going:
            try:
                cage.finish_row()
            except Exception as error:
                errors[i] = error
        assert sorted(errors) == ([] if t < 2 else [1, 2, 3])
    assert type(errors[1]) is DummyFaultError
    for i, text in ((1, "step"), (2, "SIGSEGV"), (3, "code 3")):
        assert f"cage {i} (FaultyEnv), process" in notes_of(errors[i]).replace(
            ": process", ", process"
        )
        assert text in notes_of(errors[i])
    for i, cage in enumerate(cages):
        expected = simulate(CountingEnv(4), i, [actions])[0]
        steps = 2 if i in errors else T
        found = [float(plain(samples.env.reward, t, i)) for t in range(steps)]
        assert found == expected.rewards[:steps]
        observations = [plain(samples.env.observation, t, i) for t in range(steps + 1)]
        assert_same_tree(observations, expected.observations[: steps + 1], "observations")
        if i not in errors:
            assert [traj.length for traj in cage.collect_completed_trajs()] == [4]
        cage.close()


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("ending", ["close", "kill"])
def test_a_crowded_environment_leaves_nothing(
    ending: str, fork: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "LEAVE_S", 0.3)
    cage = forked(partial(CrowdedEnv, fork=fork), index=4, seed=1)
    with cage:
        bind(cage, CountingEnv())
        pids = cage.pids
        run(cage, "start_reset", 0)
        run(cage, "start_row", 0)
        if ending == "kill":
            os.kill(cage.pid, signal.SIGKILL)
            with within(), pytest.raises(WorkerDiedError, match=r"cage 4.*was killed by SIGKILL"):
                run(cage, "start_row", 1)
    assert all(wait_until_gone(pid) for pid in (cage.pid, *pids))
    assert len(pids) == 1 + fork


def test_an_environment_here_that_fails_to_close_is_closed() -> None:
    cage = Cage(partial(FaultyEnv, "close"), seed=1)
    with pytest.raises(DummyFaultError, match="close number 1"):
        cage.close()
    cage.close()
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        cage.reset_async()


def test_a_constructor_here_that_fails_names_the_environment() -> None:
    with pytest.raises(DummyFaultError, match="constructor number 1") as caught:
        Cage(partial(FaultyEnv, "constructor"), index=4)
    if hasattr(caught.value, "__notes__"):
        assert "environment 4, while it was made" in notes_of(caught.value)


def test_an_interrupted_wait_loses_no_answer_and_takes_none_for_another() -> None:
    class Slow(CountingEnv):
        def step(self, action: Any) -> Any:
            time.sleep(0.2)
            return super().step(action)

        def slowly(self) -> str:
            time.sleep(0.2)
            return "late"

    with forked(Slow, seed=1) as cage:
        samples = bind(cage, CountingEnv())
        run(cage, "start_reset", 0)
        cage.start_row(0)
        with alarm(0.05):
            cage.finish_row()
        cage.finish_row()
        assert plain(samples.env.observation, 1, 0)[2] == 1
        with alarm(0.05):
            cage.slowly()
        assert cage.add(1, 2) == 3
        cage.step_async(1)
        with alarm(0.05):
            cage.await_step()
        assert cage.await_step().next_observation[2] == 2
        run(cage, "start_row", 2)
        assert plain(samples.env.observation, 3, 0)[2] == 3


class HolderEnv(CountingEnv):
    """Put something into infos that no other process can have."""

    def step(self, action: Any) -> Any:
        *others, info = super().step(action)
        info["parts"] = {"renderer": [1, threading.Lock()]}
        return *others, info


def test_an_info_that_cannot_be_pickled_is_named() -> None:
    with forked(HolderEnv, seed=1) as cage:
        cage.reset_async()
        cage.await_step()
        cage.step_async(1)
        said = (
            r"^info\['parts'\]\['renderer'\]\[1\], of type _thread\.lock, cannot be sent to another"
        )
        with pytest.raises(TypeError, match=said):
            cage.await_step()
