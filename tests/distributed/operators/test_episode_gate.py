"""Who waits for whom in lock-step, with threads of random lengths of episodes."""

from __future__ import annotations

import random
import threading
import time

import pytest

from parllel.distributed.operators.experiments.episode_gate import (
    FreeGate,
    LockStepGate,
    StoppedError,
)


def run(members):
    """Run a function for each name in a thread of its own, and raise what one of them raised."""
    errors = []

    def guarded(name, function):
        try:
            function(name)
        except Exception as error:
            errors.append(error)

    threads = [
        threading.Thread(target=guarded, args=(name, function))
        for name, function in members.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("seed", range(5))
def test_no_member_is_a_step_or_an_episode_ahead(seed):
    rng = random.Random(seed)
    names = [f"m{i}" for i in range(rng.randint(1, 6))]
    lengths = {name: [rng.randint(0, 6) for _ in range(rng.randint(1, 8))] for name in names}
    gate = LockStepGate(names)
    passed = []

    def play(name):
        for episode, length in enumerate(lengths[name]):
            gate.begin_episode(name)
            for step in range(length):
                gate.before_step(name)
                passed.append((episode, step, name))
                # A moment in which another could get ahead.
                time.sleep(0.001 * (step % 3))
            gate.end_episode(name)
        gate.leave(name)

    run(dict.fromkeys(names, play))
    places = [(episode, step) for episode, step, _ in passed]
    assert places == sorted(places)
    assert len(passed) == sum(sum(own) for own in lengths.values())


def test_a_member_that_leaves_within_an_episode_holds_nobody_up():
    gate = LockStepGate(["a", "b"])
    passed = []

    def stays(name):
        for _ in range(2):
            gate.begin_episode(name)
            for _ in range(5):
                gate.before_step(name)
                passed.append(name)
            gate.end_episode(name)
        gate.leave(name)

    def goes(name):
        gate.begin_episode(name)
        gate.before_step(name)
        gate.leave(name)
        gate.leave(name)

    run({"a": stays, "b": goes})
    assert passed == ["a"] * 10


@pytest.mark.parametrize("make", [FreeGate, lambda: LockStepGate(["a", "b"])], ids=["free", "step"])
def test_stop_wakes_who_waits_and_refuses_who_comes(make):
    gate = make()
    waits = threading.Event()

    def waiting(name):
        waits.set()
        gate.pause(1000)

    def stopping(name):
        waits.wait()
        gate.stop()

    with pytest.raises(StoppedError):
        run({"a": waiting, "b": stopping})
    for call in (gate.begin_episode, gate.before_step):
        with pytest.raises(StoppedError):
            call("a")
    gate.end_episode("a")
    gate.leave("a")


@pytest.mark.parametrize(
    "make", [lambda: FreeGate(0.05), lambda: LockStepGate(["a"], 0.05)], ids=["free", "step"]
)
def test_a_pace_is_kept(make):
    gate = make()
    gate.begin_episode("a")
    began = time.monotonic()
    for _ in range(5):
        gate.before_step("a")
    assert time.monotonic() - began >= 4 * 0.05
