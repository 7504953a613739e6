from __future__ import annotations

import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
IDEAL = "benchmarks.peers.sides.ideal_side:IdealSide"
OURS = "benchmarks.peers.sides.parllel_side:ParllelSide"
MAIN_PROCESS = "benchmarks.peers.sides.main_process_side:MainProcessSide"
GYMNASIUM = "benchmarks.peers.sides.gymnasium_side:GymnasiumSide"
SYNTHETIC = {"turns": 3, "spread": 0.5, "info_keys": 1, "episode_steps": 7}
# A side of its own for servers that misbehave; written into a module by a fixture.
FAULTY = """
import os, signal, subprocess, sys, time
from benchmarks.peers.side import Side

class Faulty(Side):
    questions = ("child",)
    def __init__(self, workload, settings):
        self.how = settings["how"]
        if self.how == "raise":
            raise ValueError("no such luck")
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    def child(self):
        return self.process.pid
    def first(self):
        print("printed by a library")
        return {"steps": 1}
    def run(self):
        if self.how == "hang":
            time.sleep(600)
        if self.how == "die":
            print("last words", file=sys.stderr)
            os.kill(os.getpid(), signal.SIGKILL)
        return 1
"""


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.peers import client, driver, workload

    return client, driver, workload


@pytest.fixture
def faulty(peers, tmp_path, monkeypatch):
    """Return what makes a prepared server that misbehaves, and its child's number."""
    client, _, workload = peers
    from benchmarks.harness import child

    (tmp_path / "faulty_side.py").write_text(FAULTY)
    monkeypatch.setattr(child, "PATHS", (*child.PATHS, tmp_path))
    servers = []

    def make(how):
        servers.append(client.SideProcess("faulty"))
        servers[0].prepare("faulty_side:Faulty", workload.Workload("CartPole-v1"), {"how": how})
        return servers[0], servers[0].ask("child")

    yield make
    for server in servers:
        server.close()


def by_hand(env_id, B, T, seed):
    """Step as a reader would, one environment after the other, and return the trace."""
    trace = {"steps": T * B, "reward": 0.0, "observation": 0.0, "ended": 0}
    probe = gym.make(env_id)
    probe.action_space.seed(seed)
    actions = [[probe.action_space.sample() for _ in range(B)] for _ in range(T)]
    probe.close()
    for b in range(B):
        env = gym.make(env_id)
        sequence = np.random.SeedSequence(seed, spawn_key=(b,))
        env.reset(seed=int(sequence.generate_state(1)[0]))
        for t in range(T):
            observation, reward, terminated, truncated, _ = env.step(actions[t][b])
            trace["reward"] += float(np.float32(reward))
            if terminated or truncated:
                trace["ended"] += 1
                observation, _ = env.reset()
            trace["observation"] += float(observation.astype(np.float32).sum(dtype=np.float64))
        env.close()
    return trace


def first_batch(client, side, workload, settings):
    server = client.SideProcess(side)
    try:
        return server.prepare(side, workload, settings)["trace"]
    finally:
        server.close()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_ideal_and_ours_step_the_same_environments(peers, env_id):
    client, driver, workload = peers
    # Pendulum is cut after 200 steps, so that there is a reset as well.
    T = 40 if env_id == "CartPole-v1" else 210
    work = workload.Workload(env_id, B=4, T=T, seed=3)
    expected = by_hand(env_id, 4, T, 3)
    assert expected["ended"] > 0
    ours = first_batch(client, OURS, work, {"cage": "vectorized"})
    together = client.Together("ideal", sys.executable, 2)
    try:
        shares = [{"share": i, "shares": 2, "core": None} for i in range(2)]
        ideal = together.prepare(IDEAL, work, shares)["trace"]
        assert driver.same_trace(ideal, expected)
        assert driver.same_trace(ours, expected)
        timing = together.run(3)
        assert timing.steps == 3 * 4 * T
        # Two at once, each timed by itself: their rates add up to no less than steps over the longest.
        assert timing.rate >= timing.steps / timing.seconds * (1 - 1e-9)
    finally:
        together.close()


def test_other_environments_are_not_the_same(peers):
    _, driver, _ = peers
    trace = {"steps": 8, "reward": 3.0, "observation": 1.5, "ended": 2}
    assert driver.same_trace(trace, dict(trace))
    for key in trace:
        assert not driver.same_trace(trace, {**trace, key: trace[key] + 1})


def test_ours_with_workers_steps_the_same(peers):
    client, driver, workload = peers
    work = workload.Workload("synthetic", B=4, T=16, options=SYNTHETIC)
    settings = {"cage": "synchronized", "n_workers": 1, "participate": True}
    alone = first_batch(client, OURS, work, {"cage": "vectorized"})
    assert alone["ended"] == 4 * (16 // 7)
    assert driver.same_trace(first_batch(client, OURS, work, settings), alone)


def test_the_main_process_is_timed_without_its_waits_for_workers(peers):
    client, _, workload = peers
    settings = {"cage": "synchronized", "n_workers": 1, "participate": False, "pause": 1000}
    some = workload.Workload("synthetic", B=4, T=8, options={**SYNTHETIC, "episode_steps": 10**9})
    server = client.SideProcess("main process")
    try:
        server.prepare(MAIN_PROCESS, some, settings)
        began = time.perf_counter()
        own_s = server.ask("own_s", batches=3)
        took_s = time.perf_counter() - began
    finally:
        server.close()
    # Held back for 15 ms and more in each of 24 rows, which do not count.
    held_s = 24 * 0.015
    assert 0 < 8 * own_s <= took_s - held_s


@pytest.mark.soak
def test_envpool_in_a_cage_is_envpool_by_its_own_loop(peers):
    pytest.importorskip("envpool", reason="has no wheels for this Python or system")
    client, driver, workload = peers
    work = workload.Workload("CartPole-v1", B=4, T=40, seed=3)
    settings = {"num_threads": 1, "own": True}
    sides = "benchmarks.peers.sides.envpool_side:EnvPool"
    rows, cage = (
        first_batch(client, f"{sides}{name}Side", work, settings) for name in ("Rows", "Cage")
    )
    assert cage["ended"] > 4
    assert driver.same_trace(rows, cage)
    gaps = first_batch(client, f"{sides}Side", work, settings)
    assert gaps["steps"] < cage["steps"] == 4 * 40


def test_slots_that_only_reset_are_no_steps(peers):
    client, _, workload = peers
    # An episode of 7 steps takes 8 rows when its reset has a row to itself: rows 7 and 15 of 16.
    work = workload.Workload("synthetic", B=3, T=16, options=SYNTHETIC)
    settings = {"vector": "sync", "autoreset": "NextStep"}
    server = client.SideProcess("sync")
    try:
        assert server.prepare(GYMNASIUM, work, settings)["trace"]["steps"] == 3 * (16 - 2)
        # Of the next 16 rows again two; of 15 batches, 15 * 16 rows, every eighth.
        assert server.run(15).steps == 15 * 3 * (16 - 2)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("how", "message"),
    [("hang", "faulty: no answer within 0.2 s"), ("die", "faulty: ended without.*last words")],
)
def test_a_stuck_or_dead_side_is_ended_with_its_children(peers, faulty, how, message):
    client, _, _ = peers
    server, child = faulty(how)
    with pytest.raises(client.SideError, match=message):
        server.run(1, timeout_s=0.2 if how == "hang" else 20.0)
    assert has_ended(child)


def test_what_a_side_raises_is_reported(peers, faulty):
    client, _, _ = peers
    with pytest.raises(client.SideError, match="faulty: ValueError: no such luck"):
        faulty("raise")


def test_a_side_that_is_halted_halts_its_children_and_closes(peers, faulty):
    server, child = faulty("well")
    server.stop()
    deadline = time.monotonic() + 20
    while state_of(child) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state_of(child) == "T"
    server.resume()
    assert server.run(5).steps == 5
    server.stop()
    server.close()
    server.close()
    assert has_ended(child)


def state_of(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def has_ended(pid):
    # An orphan may be left for the first process to collect.
    deadline = time.monotonic() + 20
    while state_of(pid) not in (None, "Z", "X") and time.monotonic() < deadline:
        time.sleep(0.01)
    return state_of(pid) in (None, "Z", "X")
