"""Functions that act in this process."""

from __future__ import annotations

import sys
import threading

import pytest
from agent_setup import context

from parllel.distributed.remote import Agent, AgentFailure


def test_whatever_a_function_raises_is_its_failure():
    def agent(observation):
        print("before")
        raise observation["error"]

    with Agent(agent, context()) as made:
        for error, reason in (
            (ValueError("why"), "ValueError: why"),
            (SystemExit(2), "SystemExit: 2"),
            (GeneratorExit(), "GeneratorExit"),
        ):
            failure, log = made.act({"error": error})
            assert failure == AgentFailure("ERROR", reason)
            assert log["stdout"] == "before\n"
            assert 'raise observation["error"]' in log["stderr"]
        # Ctrl-C is the user's.
        with pytest.raises(KeyboardInterrupt):
            made.act({"error": KeyboardInterrupt()})


def test_one_that_is_late_is_told_so_once_it_returns():
    def agent(observation):
        threading.Event().wait(observation.wait)
        return 1

    with Agent(agent, context(actTimeout=0.01)) as made:
        failure, log = made.act({"wait": 0.2, "remainingOverageTime": 0.05})
        assert failure.status == "TIMEOUT"
        assert failure.reason.startswith("no action within 0.06 s; it took 0.2")
        assert log["duration"] > 0.2
        assert made.act({"wait": 0.05, "remainingOverageTime": 60})[0] == 1


def test_the_first_act_may_take_the_time_of_the_start():
    def agent(observation):
        threading.Event().wait(0.05)
        return 1

    with Agent(agent, context(actTimeout=0.01)) as made:
        assert made.act({})[0] == 1
        assert made.act({})[0].status == "TIMEOUT"


def test_acts_at_the_same_time_do_not_mix_what_they_print(capsys):
    n = 4
    barrier = threading.Barrier(n + 1)

    def agent(observation):
        for i in range(50):
            if i % 10 == 0:
                barrier.wait(30)
            print(observation.name, i)
            sys.stderr.write(observation.name)
        return observation.name

    logs = {}

    def run(name):
        with Agent(agent, context()) as made:
            logs[name] = made.act({"name": name, "remainingOverageTime": 60})

    threads = [threading.Thread(target=run, args=(name,)) for name in "abcd"]
    before = sys.stdout, sys.stderr
    for thread in threads:
        thread.start()
    for i in range(5):
        barrier.wait(30)
        print("main", i)
    for thread in threads:
        thread.join()
    assert (sys.stdout, sys.stderr) == before
    for name in "abcd":
        action, log = logs[name]
        assert action == name
        assert log["stdout"] == "".join(f"{name} {i}\n" for i in range(50))
        assert log["stderr"] == name * 50
    assert capsys.readouterr().out == "".join(f"main {i}\n" for i in range(5))


def test_logs_are_cut_and_shown_where_wanted(capsys):
    def agent():
        print("x" * 10**6)
        return 1

    with Agent(agent, context(maxLogLength=5)) as made:
        assert made.act({})[1]["stdout"] == "xxxxx"
    assert capsys.readouterr() == ("", "")
    with Agent(lambda: print("hello"), context(debug=True)) as made:
        assert made.act({})[0] is None
    # Standard output holds results alone.
    assert capsys.readouterr() == ("", "hello\n")


def test_an_agent_that_asks_another_one():
    with Agent(lambda: print("inner") or 1, context()) as inner:

        def outer():
            print("before")
            action, log = inner.act({})
            print("after", log["stdout"], end="")
            return action

        with Agent(outer, context()) as made:
            action, log = made.act({})
    assert (action, log["stdout"]) == (1, "before\nafter inner\n")
