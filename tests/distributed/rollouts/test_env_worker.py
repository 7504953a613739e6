"""Environments whose processes die, hang or fail are started again, while the others go on."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from waiting import LONG_S
from worker_setup import SEED, make_cages, make_handler, make_worker, ready

from parllel.cages import ProcessCage, VectorEnvFactory
from parllel.distributed.rollouts import (
    EnvWorker,
    EpisodeStatistics,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
)
from parllel.errors import ClosedError, RestartsUsedUpError
from parllel.system.processes import RestartBudget
from parllel.testing.dummy_agents import fingerprint
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import FaultyEnv

LENGTH = 4


class SeededEnv(CountingEnv):
    """Observes the seed of its first reset, in all steps."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.first_seed = seed
        observation, info = super().reset(seed=seed, options=options)
        observation[:] = self.first_seed % 1000
        return observation, info

    def step(self, action):
        observation, *others = super().step(action)
        observation[:] = self.first_seed % 1000
        return observation, *others


class Slow(CountingEnv):
    """Takes a while for each step, so that a run does not race through thousands of them."""

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


class LateAgain(Slow):
    """Waits in each process but the first until the file `go` exists."""

    def __init__(self, folder):
        super().__init__()
        first = folder / "first"
        if not first.exists():
            first.touch()
            return
        deadline = time.monotonic() + LONG_S
        while not (folder / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)


class FaultyOnce(FaultyEnv):
    """Fails in its first process only, which leaves a file behind."""

    def __init__(self, path, *args, **options):
        super().__init__(*args, **options)
        self.path = path

    def _enter(self, phase):
        if hasattr(self, "path") and phase == self.phase and self._calls[phase] + 1 == self.number:
            if os.path.exists(self.path):
                return
            open(self.path, "w").close()
        super()._enter(phase)


class Collected:
    """A worker with its sender and storage, and all steps that it made."""

    def __init__(self, sources, statistics=None, **options):
        self.records = []
        self.buffer = ReplayBuffer(10_000)
        self.sender = FragmentSender(self.buffer)
        self.schedule = ready(sources, batch_size=1, **options)
        self.worker = RolloutWorker(
            self.schedule,
            fragment_length=LENGTH,
            seed=1,
            sender=self.sender,
            progress_handler=self.see,
            statistics=statistics,
        )

    def see(self, record):
        self.records.append(record.environment)
        self.last = record

    def run_until(self, condition, timeout_s=20):
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the time is up"
            self.worker.run(1)

    def fragments(self, environment):
        assert self.sender.flush(30)
        self.sender.ledger.check()
        found = self.buffer.fetch(self.buffer.prepared(), 1)
        return [fragment for fragment in found if fragment.environment == environment]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.worker.close()
        self.sender.close()
        self.sender.ledger.check()
        self.buffer.close()


def test_a_killed_environment_is_started_again_while_the_others_go_on(tmp_path):
    sources = [make_worker(Slow, 0), make_worker(partial(LateAgain, tmp_path), 1)]
    sources.append(make_worker(Slow, 2))
    with Collected(sources) as found:
        found.worker.run(30)
        victim = sources[1].cage.pid
        os.kill(victim, signal.SIGKILL)
        found.run_until(lambda: found.schedule.restarts >= 1)
        steps = len(found.records)
        found.run_until(lambda: all(found.records[steps:].count(i) > 10 for i in (0, 2)))
        assert 1 not in found.records[steps:]
        (tmp_path / "go").touch()
        found.run_until(lambda: 1 in found.records[steps:])
        assert sources[1].cage.pid != victim
        found.run_until(lambda: found.records[steps:].count(1) > 3 * LENGTH)
        fragments = found.fragments(1)
    epochs = [fragment.epoch for fragment in fragments]
    assert sorted(set(epochs)) == [0, 1]
    before = fragments[epochs.index(1) - 1]
    # What there was of the fragment came, with the break at its end, if anything was.
    if before.length < LENGTH:
        assert before.env.aborted[-1] == (not before.env.done[-1])
    after = fragments[epochs.index(1)]
    assert after.env.first[0]
    assert not after.follows(before)


PHASES = [
    ("step", "kill", 4),
    ("step", "raise", 4),
    ("step", "exit", 4),
    ("reset", "segfault", 1),
    ("reset", "raise", 1),
    ("step", "hang_in_c", 3),
    ("reset", "stop", 1),
]


@pytest.mark.parametrize(("phase", "fault", "number"), PHASES)
@pytest.mark.few(3)
def test_any_fault_is_followed_by_a_restart(phase, fault, number, tmp_path):
    faulty = partial(FaultyOnce, str(tmp_path / "failed"), phase, fault, number=number)
    # Its process has to be made in that time, too.
    timeout_s = 3.0 if fault in ("hang_in_c", "stop") else 20.0
    sources = [make_worker(Slow, 0), make_worker(faulty, 1, timeout_s=timeout_s)]
    with Collected(sources) as found:
        found.run_until(lambda: found.schedule.restarts >= 1)
        steps = len(found.records)
        found.run_until(lambda: found.records[steps:].count(1) > 2 * LENGTH)
        # The other one goes on beside it.
        assert 0 in found.records[steps:]
        assert not found.schedule.parked
        fragments = found.fragments(1)
    assert max(fragment.epoch for fragment in fragments) >= 1


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_step_is_kept_whose_episode_ends_in_a_reset_that_raises(end, tmp_path):
    make = partial(FaultyOnce, str(tmp_path / "failed"), "reset", number=2, lengths=5, end=end)
    statistics = EpisodeStatistics()
    with Collected([make_worker(make, 0)], statistics=statistics) as found:
        found.run_until(lambda: found.schedule.restarts >= 1)
        found.run_until(lambda: len(found.records) > 5 + LENGTH)
        fragments = [one for one in found.fragments(0) if one.epoch == 0]
    # An episode of five steps: the reward of each is its number, and what the action adds.
    rewards = np.concatenate([np.asarray(one.env.reward)[: one.n_steps] for one in fragments])
    assert np.floor(rewards).astype(int).tolist() == [1, 2, 3, 4, 5]
    last = fragments[-1].env
    flags = last.terminated[-1], last.truncated[-1], last.aborted[-1]
    assert flags == (end == "terminated", end == "truncated", False)
    # What it observed last, and nothing of another episode: number of the episode, then of the step.
    if end == "truncated":
        (final,) = fragments[-1].final_observations.values()
    else:
        final = fragments[-1].next_observation
    assert np.asarray(final)[1:].tolist() == [0.0, 5.0]
    assert [traj.length for traj in statistics.drain()][:1] == [5]


def test_an_environment_that_always_fails_is_parked_and_reported():
    sources = [
        make_worker(Slow, 0),
        make_worker(partial(FaultyEnv, "step", "exit", number=2), 1, most=2),
    ]
    with Collected(sources) as found:
        with pytest.warns(RuntimeWarning, match=r"environment 1 is parked: 2 restarts"):
            found.run_until(lambda: found.schedule.parked)
        assert list(found.schedule.parked) == [1]
        assert "exited with code 3" in str(found.schedule.parked[1])
        steps = len(found.records)
        # The batch of the others is full without it.
        found.worker.run(20)
        assert set(found.records[steps:]) == {0}
        assert sources[1].restarts == 2


def test_a_run_ends_when_all_environments_are_parked():
    make = partial(FaultyEnv, "step", "raise", number=3)
    sources = [make_worker(make, i, most=i) for i in range(2)]
    with (
        Collected(sources) as found,
        pytest.warns(RuntimeWarning, match="is parked"),
        pytest.raises(RestartsUsedUpError, match=r"environment 0 is parked.*\n.*step number 3"),
    ):
        found.worker.run(1000)


def test_the_seed_of_each_process_is_another_and_always_the_same():
    seen = []
    for _ in range(2):
        sources = [make_worker(SeededEnv, 7, most=3)]
        with Collected(sources) as found:
            seeds = []
            for restarts in range(3):
                found.run_until(lambda n=restarts: found.schedule.restarts == n)
                found.worker.run(3)
                seeds.append(float(found.last.observation[0]))
                os.kill(sources[0].cage.pid, signal.SIGKILL)
        seen.append(seeds)
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 3
    # The first plays as a cage with the same seed does.
    with make_cages("process", makes=[SeededEnv])[0]:
        pass


def test_pauses_grow_and_do_not_hold_others_up():
    sources = [make_worker(Slow, 0), make_worker(Slow, 1, pause_s=0.5)]
    with Collected(sources) as found:
        found.worker.run(10)
        os.kill(sources[1].cage.pid, signal.SIGKILL)
        killed = time.monotonic()
        steps = len(found.records)
        found.run_until(lambda: found.schedule.restarts >= 1)
        assert time.monotonic() - killed >= 0.5
        # Held up, it would have taken one step at most; on a busy machine it takes few.
        assert found.records[steps:].count(0) > 5


class HangsWhenMadeAgain(Slow):
    """Hangs in its second construction; each leaves a file behind."""

    def __init__(self, folder):
        super().__init__()
        made = len(os.listdir(folder))
        (folder / str(made)).touch()
        if made == 1:
            time.sleep(600)


def test_a_construction_that_hangs_does_not_hold_others_up(tmp_path, monkeypatch):
    sources = [make_worker(Slow, 0), make_worker(partial(HangsWhenMadeAgain, tmp_path), 1)]
    waited, await_spaces = [], ProcessCage._await_spaces

    def watched(cage):
        if not cage.awaited().done():
            waited.append(cage)
        return await_spaces(cage)

    with Collected(sources) as found:
        found.worker.run(10)
        monkeypatch.setattr(ProcessCage, "_await_spaces", watched)
        os.kill(sources[1].cage.pid, signal.SIGKILL)
        found.run_until(lambda: len(os.listdir(tmp_path)) == 2)
        # The time-out of a construction, which its process still allows 20 seconds.
        monkeypatch.setattr(sources[1], "_timeout_s", 0.1)
        found.run_until(lambda: found.schedule.restarts >= 2)
    assert not waited


def test_a_recurrent_agent_begins_anew_after_a_crash():
    sources = [make_worker(partial(Slow, 10_000), i) for i in range(2)]
    handler = make_handler(recurrent=True)
    with ReplayBuffer(10_000) as buffer, FragmentSender(buffer) as sender:
        schedule, after = ready(sources, handler, batch_size=1), []

        def see(record):
            after.extend([record] * (schedule.restarts > 0 and record.environment == 0))

        with RolloutWorker(
            schedule, fragment_length=3, seed=1, sender=sender, progress_handler=see
        ) as worker:
            worker.run(15)
            os.kill(sources[0].cage.pid, signal.SIGKILL)
            # A fragment of it, and a step of the next.
            while len(after) < 4:
                worker.run(1)
            assert sender.flush(30)
            fragments = buffer.fetch(buffer.prepared(), 1)
    remembered = {}
    for fragment in fragments:
        # It is zero after a reset and after a crash, and goes on from one fragment to the next.
        state = remembered.get(fragment.key[1:3], 0)
        assert fragment.agent.initial_rnn_state == state
        for seen in fingerprint(fragment.env.observation)[fragment.env.valid]:
            state = (2 * state + np.floor(seen)) % 16
        remembered[fragment.key[1:3]] = state
    assert remembered.keys() == {(0, 0), (0, 1), (1, 0)}


def test_the_time_out_is_that_of_the_process_that_runs():
    with EnvWorker(CountingEnv, seed=SEED, timeout_s=20.0, start_method="fork") as worker:
        assert worker.timeout_s == 20.0
        with pytest.raises(AttributeError, match="timeout_s"):
            worker.timeout_s = 0.1


def test_a_forked_copy_steps_and_restarts_nothing():
    workers = [make_worker(CountingEnv, i) for i in range(2)]
    with closing(ready(workers, batch_size=2)) as schedule:
        before = [worker.cage.pid for worker in workers]
        copy = os.fork()
        if not copy:
            refused = 0
            for call in (partial(schedule.begin, None), partial(schedule.advance, may_act=True)):
                try:
                    call()
                except ClosedError as error:
                    refused += "forked copy" in str(error)
            schedule.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 2
        assert [worker.cage.pid for worker in workers] == before
        assert not any(worker.restarts for worker in workers)
        assert [worker.cage.render_mode for worker in workers] == ["rgb_array"] * 2


def test_a_native_vector_environment_is_taken_as_one_environment():
    make = VectorEnvFactory(lambda n: SyncVectorEnv([CountingEnv] * n))
    with EnvWorker(make, seed=SEED, budget=RestartBudget(1, 60.0), start_method="fork") as worker:
        assert worker.cage.spaces.observation == CountingEnv().observation_space
        assert worker.fail(RuntimeError("given up")) is not None
        worker.restart()
        worker.cage.reset_async()
        assert worker.cage.await_step().observation.shape == CountingEnv().observation_space.shape
