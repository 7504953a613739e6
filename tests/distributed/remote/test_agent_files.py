"""Agents of files and of source text, each executed once in a process of its own."""

from __future__ import annotations

import os
from enum import IntEnum

import pytest
from agent_setup import context, file_agent

from parllel.distributed.remote import Agent, AgentFailure
from parllel.distributed.wire import WireError
from parllel.errors import ClosedError, WorkerDiedError, WorkerTimeoutError

OBSERVATION = {"step": 1, "inner": {"list": [{"a": 2}]}, "remainingOverageTime": 0}


def test_the_last_that_is_defined_acts_and_is_executed_once(tmp_path):
    source = """
        import os
        from os import getpid
        acts = []
        class Helper:
            pass
        def first(observation):
            return "first"
        def agent(observation, configuration):
            acts.append(observation.step)
            return [len(acts), observation.inner.list[0].a, os.getpid(), configuration.own]
        LIMIT = 3
        import math
    """
    environment = context(own="x")
    with file_agent(tmp_path, source, environment=environment) as agent:
        n, a, pid, own = agent.act(OBSERVATION)[0]
        assert (n, a, own) == (1, 2, "x")
        assert pid != os.getpid()
        environment.configuration["own"] = "y"  # is read at each act
        assert agent.act(OBSERVATION)[0] == [2, 2, pid, "y"]
        assert agent.act_batch([OBSERVATION] * 3)[0] == [[n, 2, pid, "y"] for n in (3, 4, 5)]
        assert agent.act_batch([])[0] == []
        assert (agent.kind, agent.recurrent) == ("file", False)


def test_siblings_of_one_name_stay_apart_and_the_path_is_known(tmp_path):
    agents = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "helper.py").write_text(f"NAME = {name!r}\n")
        source = """
            from helper import NAME
            def agent(observation, configuration):
                return [NAME, configuration["__raw_path__"]]
        """
        agents.append(file_agent(folder, source))
    for name, agent in zip("ab", agents, strict=True):
        with agent:
            assert agent.act(OBSERVATION)[0] == [name, str(tmp_path / name / "agent.py")]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def agent(o)\n    return 1", r"SyntaxError: expected ':' \(agent.py, line 1\)"),
        ("x = 1\nraise KeyError('gone')", "cannot be imported: KeyError: 'gone'"),
        ("import sys\nsys.exit(3)", r"cannot be imported, because it exits \(status 3\)"),
        ("x = 1", "expected a function or a Policy, got none"),
        ("def agent(a, b, c): pass", "agent: expected a function of at most two arguments"),
    ],
)
def test_code_that_fails_is_refused_when_the_agent_is_made(tmp_path, source, said):
    with pytest.raises(ValueError, match=said) as raised:
        file_agent(tmp_path, source)
    assert str(tmp_path / "agent.py") in str(raised.value)


def test_source_that_fails_is_refused_with_its_line():
    with pytest.raises(ValueError, match=r"SyntaxError: '\(' was never closed \(<agent>, line 2\)"):
        Agent("def agent(o):\n    return (1\n", context())


def test_code_that_ends_or_hangs_its_process_is_refused(tmp_path):
    with pytest.raises(WorkerDiedError, match="its process exited with code 7 when the agent's"):
        file_agent(tmp_path, "import os; os._exit(7)")
    with pytest.raises(WorkerTimeoutError, match=r"not ready within 0\.5 s when the agent's code"):
        file_agent(tmp_path, "import time; time.sleep(1000)", agentTimeout=0.5)


def test_a_file_that_fails_later_costs_the_next_act(tmp_path):
    source = "import os\ndef agent(o):\n    os._exit(1)\n"
    with file_agent(tmp_path, source) as agent:
        assert "exited with code 1" in agent.act(OBSERVATION)[0].reason
        (tmp_path / "agent.py").write_text("x = 1\n")
        failure, _ = agent.act(OBSERVATION)
        assert "expected a function or a Policy, got none" in failure.reason
        (tmp_path / "agent.py").write_text("def agent(o): return 3\n")
        assert agent.act(OBSERVATION)[0] == 3


def test_all_that_is_printed_is_in_the_log_and_cut(tmp_path):
    source = """
        import ctypes, os, subprocess, sys
        def agent(observation):
            print("python")
            sys.stderr.write("error ä")
            os.write(1, b"descriptor ")
            subprocess.run(["sh", "-c", "printf program; printf whoops >&2"])
            ctypes.CDLL(None).printf(b" c")
            if observation.step == 2:
                raise ValueError("why")
            return 1
    """
    environment = context(maxLogLength=1000)
    with file_agent(tmp_path, source, environment=environment) as agent:
        action, log = agent.act(OBSERVATION)
        assert action == 1
        assert log["stdout"] == "python\ndescriptor program c"
        assert log["stderr"] == "error äwhoops"
        failure, log = agent.act({**OBSERVATION, "step": 2})
        assert failure == AgentFailure("ERROR", "ValueError: why")
        assert 'raise ValueError("why")\nValueError: why\n' in log["stderr"]
        assert "call_agent" not in log["stderr"]
        environment.configuration["maxLogLength"] = 8
        assert agent.act(OBSERVATION)[1]["stdout"] == "python\nd"


def test_what_was_printed_before_a_death_is_in_the_log(tmp_path):
    source = "import os\ndef agent(o):\n    print('last words')\n    os._exit(1)\n"
    with file_agent(tmp_path, source) as agent:
        assert agent.act(OBSERVATION)[1]["stdout"] == "last words\n"


def test_its_input_is_empty_and_it_ends_when_it_is_closed(tmp_path):
    with file_agent(tmp_path, "def agent(): return input()") as agent:
        assert agent.act(OBSERVATION)[0].reason.startswith("EOFError")
    agent.close()
    with pytest.raises(ClosedError, match=r"used after close\(\)"):
        agent.act(OBSERVATION)


def test_observations_are_made_plain_where_they_have_to_be(tmp_path):
    class Side(IntEnum):
        LEFT = 3

    class Struct(dict):
        pass

    source = "def agent(observation): return [observation.side, type(observation.side).__name__]"
    with file_agent(tmp_path, source) as agent:
        assert agent.act(Struct(side=Side.LEFT))[0] == [3, "int"]
        with pytest.raises(
            WireError, match=r"^side: expected JSON values or arrays, got builtins.set"
        ):
            agent.act({"side": {1}})
        assert agent.act({"side": 1})[0] == [1, "int"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_forked_copies_reach_no_agent_of_their_owner(tmp_path):
    source = """
        acts = []
        def agent(observation):
            acts.append(observation.step)
            print("acting")
            return len(acts)
    """
    with file_agent(tmp_path, source) as agent:
        for n in range(1, 6):
            assert agent.act(OBSERVATION)[0] == n
            copy = os.fork()
            if not copy:
                refused = 0
                try:
                    agent.act(OBSERVATION)
                except ClosedError as error:
                    refused = int("forked copy" in str(error))
                agent.close()
                os._exit(refused)
            assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 1
