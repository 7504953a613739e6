"""Episodes leave nothing behind: neither in this process nor in those of agents.

PARLLEL_SOAK_SECONDS (3600) says how long the long form takes at least.
"""

from __future__ import annotations

import os
import time

import psutil
import pytest
from private_memory import private_memory

from parllel.distributed.remote import Agent, make

AGENT = """
def agent(observation, configuration):
    print("step", observation.step)
    return observation.step % 3
"""
# Each fails now and then, and costs its process or its game.
FAILS = """
import os

def agent(observation, configuration):
    if observation.step == 7:
        os._exit(3)
    return 1
"""
SECONDS = float(os.environ.get("PARLLEL_SOAK_SECONDS", 3600))
STEPS = 1000
MAY_GROW = 4 * 2**20  # bytes: allocators keep pages of what was freed


def held():
    """Return private memory in bytes and open files, of this process and of those of agents together."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    memory = [private_memory(process.pid) for process in processes]
    return sum(memory), processes[0].num_fds(), len(processes)


def grown(before, after):
    return after[0] - before[0], after[1:], before[1:]


def test_a_thousand_steps_again_and_again(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    with make("rps", {"episodeSteps": STEPS + 1}) as env:
        agents = env.initialize_agents([str(tmp_path / "agent.py"), "statistical"])
        env.run(agents)
        assert len(env.steps) == len(env.logs) == STEPS + 1
        assert env.logs[STEPS][0]["stdout"] == f"step {STEPS - 1}\n"
        env.run(agents)
        before = held()
        # One episode takes a megabyte or two, and is gone with the next.
        for _ in range(2):
            env.run(agents)
        bytes_grown, things, things_before = grown(before, held())
    assert bytes_grown < MAY_GROW
    assert things == things_before


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_hours_of_episodes(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "fails.py").write_text(FAILS)
    ends, before, began = {}, None, time.monotonic()
    with (
        make("rps", {"episodeSteps": STEPS + 1}) as long,
        Agent(str(tmp_path / "agent.py"), long) as kept,
    ):
        while time.monotonic() - began < SECONDS:
            long.run([kept, "counter_reactionary"])
            assert len(long.steps) == STEPS + 1
            for name, agents in (
                ("rps", [str(tmp_path / "fails.py"), AGENT]),
                ("connectx", ["random", "negamax"]),
                ("gymnasium/CartPole-v1", ["random"]),
                ("pettingzoo/classic/tictactoe_v3", ["random", "random"]),
            ):
                with make(name) as env:
                    env.run(agents)
                    status = env.state[0]["status"]
                    ends[name, status] = ends.get((name, status), 0) + 1
            # After a tenth of it, when caches are full.
            if before is None and time.monotonic() - began > SECONDS / 10:
                before = held()
        after = held()
    assert set(ends) == {
        ("rps", "ERROR"),
        *((name, "DONE") for name in ("connectx", "gymnasium/CartPole-v1")),
        ("pettingzoo/classic/tictactoe_v3", "DONE"),
    }
    bytes_grown, things, things_before = grown(before, after)
    print(f"{ends}: {bytes_grown:,} bytes")
    assert bytes_grown < 2 * MAY_GROW
    assert things == things_before
