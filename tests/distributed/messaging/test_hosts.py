"""Agents in other processes: the rollouts of one process, claims, faults, and what is left behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("confluent_kafka")

from foreign_records import put_foreign_records, topics_of
from host_child import (
    LONG_S,
    TREE,
    create_agents,
    create_failing_agents,
    create_grid,
    create_other_agents,
    hosts_of,
)
from kafka_brokers import GIVEN, KINDS, DisturbedBroker
from waiting import until
from worlds import PlainWorld, World, draw_actions, leaves, names

from parllel.distributed.messaging import (
    AgentHost,
    ExecutionMode,
    HostError,
    KafkaBroker,
    MissingMessageError,
    VectorizedKafkaEnv,
)
from parllel.distributed.wire import digest
from parllel.envs.states.layer_state import NoStateError
from parllel.errors import WorkerError
from parllel.system.processes.child import Child

TIMEOUT_S = 20.0
SHORT_S = 4.0
EVERYBODY = list(names(TREE))
LEAVES = leaves(TREE)


EVERY_BROKER = pytest.mark.parametrize("kafka_address", KINDS, indirect=True)


@pytest.fixture
def kafka_address(request, broker_address):
    """The address of one broker, as most tests concern the processes rather than the broker."""
    return broker_address(getattr(request, "param", "given" if GIVEN else "mock"))


@pytest.fixture
def run():
    return f"hosts-{uuid.uuid4().hex}"


@pytest.fixture
def start(kafka_address, run):
    with hosts_of(kafka_address, run) as start:
        yield start


@pytest.fixture
def make_envs(kafka_address, run):
    with ExitStack() as stack:

        def make(hosted, n=2, timeout_s=TIMEOUT_S, **kafka):
            broker = {"bootstrap": kafka_address, "run": run, "timeout_s": timeout_s, **kafka}
            envs = VectorizedKafkaEnv(
                create_agents,
                list(TREE),
                n,
                "kafka",
                env_class=World,
                env_kwargs={"max_steps": 4},
                broker_kwargs=broker,
                hosted=hosted,
            )
            return stack.enter_context(envs)

        yield make


class Reference:
    """The same rollouts by plain functions, with random actions, subsets and resets."""

    def __init__(self, n, max_steps=4):
        self.plain = [PlainWorld(TREE, max_steps=max_steps) for _ in range(n)]
        self.draws = np.random.default_rng(0)

    def reset(self, envs, seed=None):
        seeds = [None if seed is None else seed + i for i in range(len(self.plain))]
        expected = [one.reset(each) for one, each in zip(self.plain, seeds, strict=True)]
        assert digest(envs.reset(seed=seed)) == digest(expected)

    def step(self, envs, some=False):
        draws = self.draws
        actions = [
            None if some and draws.random() < 0.3 else draw_actions(TREE, draws) for _ in self.plain
        ]
        for i, result in enumerate(envs.step_some(actions)):
            if result is not None:
                expected = self.plain[i].step(actions[i])
                assert digest([*result]) == digest([*expected])
                if expected[3]:
                    assert digest(envs.reset([i])) == digest([self.plain[i].reset()])


@EVERY_BROKER
@pytest.mark.parametrize(
    "split",
    [
        pytest.param([LEAVES[:2], LEAVES[2:]], id="leaves", marks=pytest.mark.soak),
        pytest.param([["a", "to"], ["env_a__", "action"]], id="in turns", marks=pytest.mark.soak),
        pytest.param([["*"]], id="all", marks=pytest.mark.soak),
        pytest.param([EVERYBODY[::2], EVERYBODY[1::2]], id="every other"),
    ],
)
def test_rollouts_equal_those_of_one_process(split, start, make_envs):
    hosts = [start(*agents) for agents in split]
    envs, reference = make_envs([name for agents in split for name in agents], 3), Reference(3)
    reference.reset(envs, seed=5)
    for _ in range(7):
        reference.step(envs, some=True)
    envs.kafka_broker.ledger.check()
    with pytest.raises(NoStateError, match=r"agent '.*' runs on a host"):
        envs.state()
    envs.close()
    for host in hosts:
        states = pickle.loads(host.receive(LONG_S, "serving"))
        assert set(states) == {"rollout_0", "rollout_1", "rollout_2"}


def roll_out_grid(n, episodes, **settings):
    create_grid("")
    import grid

    with VectorizedKafkaEnv(
        grid.create_agents, ["grid1"], n, env_class=grid.GridEnv, **settings
    ) as envs:
        return digest(grid.roll_out(envs, episodes, 3))


@pytest.mark.parametrize("n", [16, pytest.param(128, marks=pytest.mark.soak)])
def test_the_example_with_devices_in_two_processes(n, kafka_address, run, start):
    expected = roll_out_grid(n, 2, execution_mode=ExecutionMode.SYNC)
    for device in ("device1", "device2"):
        start(device, factory=create_grid)
    broker = {"bootstrap": kafka_address, "run": run, "timeout_s": TIMEOUT_S}
    kafka = {"kafka_mode": "kafka", "broker_kwargs": broker}
    assert roll_out_grid(n, 2, hosted=["device*"], **kafka) == expected


# ---------------------------------------------------------------- claims


def test_an_agent_that_nobody_serves_is_named(start, make_envs):
    with pytest.raises(
        HostError, match=r"'rollout_0', agent 'b': no host serves it.*no hosts; start one"
    ):
        make_envs(["b"], timeout_s=SHORT_S)
    start("a_", name="first")
    said = "'rollout_0', agent 'b': no host serves it after 4 s; the hosts of this run are host 'first'"
    with pytest.raises(HostError, match=said) as caught:
        make_envs(["a_", "b"], timeout_s=SHORT_S)
    assert (caught.value.environment, caught.value.agent) == ("rollout_0", "b")


def test_an_agent_that_two_hosts_serve_is_refused_to_the_second(start, make_envs):
    start("a_", "b", name="first")
    envs, reference = make_envs(["a_", "b"]), Reference(2)
    second = start("b", name="second")
    said = r"agent 'b' is served by host 'first' \(process \d+ on .*\); host 'second' .* cannot serve it too"
    with pytest.raises(HostError, match=said):
        second.receive(LONG_S, "serving")
    reference.reset(envs, seed=1)
    reference.step(envs)


@pytest.mark.parametrize(
    ("agents", "factory", "said"),
    [
        (["a", "b"], create_agents, "agent 'a' runs on the environment side, but host 'wrong'"),
        (["c*"], create_agents, r"agents: 'c\*' matches no agent of environment 'rollout_0'"),
        (["b"], create_other_agents, r"agents \['more'\] are not those of environment 'rollout_0'"),
    ],
)
def test_a_host_of_other_agents_is_refused_on_both_sides(agents, factory, said, start, make_envs):
    host = start(*agents, factory=factory, name="wrong")
    with pytest.raises(HostError, match=said) as caught:
        make_envs(["b"])
    assert caught.value.host == "wrong"
    with pytest.raises((HostError, WorkerError, ValueError), match=said):
        host.receive(LONG_S, "serving")


def test_a_second_environment_side_is_refused(start, make_envs):
    start("b")
    envs, reference = make_envs(["b"]), Reference(2)
    with pytest.raises(
        HostError, match=r"run 'hosts-\w+' is in use by the environment side \(process"
    ):
        make_envs(["b"])
    reference.reset(envs, seed=1)
    reference.step(envs)


def test_arguments_are_checked(make_envs):
    with pytest.raises(ValueError, match=r"hosted: 'c\*' matches no agent"):
        make_envs(["c*"])
    with pytest.raises(ValueError, match="hosted: expected a broker for agents with hosts"):
        VectorizedKafkaEnv(create_agents, list(TREE), 1, hosted=["b"], broker=KafkaBroker())


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize(
    "kafka_address", ["mock", pytest.param("tansu", marks=pytest.mark.soak)], indirect=True
)
def test_a_killed_host_is_named_and_replaced(start, make_envs):
    hosts = [start("a_", "b", name="first"), start("a__b")]
    envs, reference = make_envs(["a_", "b", "a__b"], timeout_s=SHORT_S), Reference(2)
    reference.reset(envs, seed=1)
    reference.step(envs)
    os.kill(hosts[0].pid, signal.SIGKILL)
    said = r"step 1.*agent '(a_|b)' runs on host 'first' \(process \d+ on .*\), which has ended"
    with pytest.raises(MissingMessageError, match=said) as caught:
        reference.step(envs)
    assert (caught.value.step, caught.value.host) == (1, "first")
    with pytest.raises(
        HostError, match=r"agent '(a_|b)': host 'first' .* has ended; start it again"
    ):
        envs.reset()
    start("a_", "b", name="first again")
    again = Reference(2)
    again.reset(envs, seed=2)
    again.step(envs)


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    stat = Path(f"/proc/{pid}/stat")
    while stat.read_text().rpartition(") ")[2][0] != "T":
        time.sleep(0.01)


@pytest.mark.parametrize("stopped_s", [1.5 * SHORT_S, pytest.param(30.0, marks=pytest.mark.soak)])
def test_a_stopped_host_is_named_and_goes_on_when_it_comes_back(stopped_s, start, make_envs):
    host = start("a_", "b", name="first")
    envs, reference = make_envs(["a_", "b"], timeout_s=SHORT_S), Reference(2)
    reference.reset(envs, seed=1)
    reference.step(envs)
    stop(host.pid)
    began = time.monotonic()
    with pytest.raises(MissingMessageError, match=r"runs on host 'first' .*, which was last heard"):
        reference.step(envs)
    time.sleep(max(0.0, began + stopped_s - time.monotonic()))
    os.kill(host.pid, signal.SIGCONT)
    again = Reference(2)
    again.reset(envs, seed=2)
    for _ in range(3):
        again.step(envs)


def test_a_host_that_was_replaced_while_it_was_stopped_is_refused(start, make_envs):
    first = start("a_", "b", name="first")
    envs, reference = make_envs(["a_", "b"]), Reference(2)
    reference.reset(envs, seed=1)
    stop(first.pid)
    start("a_", "b", name="second")
    with pytest.raises(HostError, match=r"'first'.* was replaced by host 'second'"):
        reference.step(envs)
    os.kill(first.pid, signal.SIGCONT)
    again = Reference(2)
    again.reset(envs, seed=2)
    for _ in range(3):
        again.step(envs)
    with pytest.raises(
        HostError, match=r"is served by host 'second'.*'first'.* cannot serve it too"
    ):
        first.receive(LONG_S, "serving")


def test_an_exception_of_an_agent_is_reported_and_a_reset_goes_on(start, make_envs):
    start("a_", factory=create_failing_agents, name="first")
    envs, reference = make_envs(["a_"]), Reference(2)
    for _ in range(2):
        reference.reset(envs, seed=1)
        for _ in range(2):
            reference.step(envs)
        said = r"agent 'a_', step 2: failed on host 'first' .*ValueError: third decision"
        with pytest.raises(HostError, match=said) as caught:
            reference.step(envs)
        assert (caught.value.agent, caught.value.step) == ("a_", 2)
        reference = Reference(2)


@pytest.mark.soak  # the command below does the same with a file
def test_hosts_start_again_with_the_states_of_their_agents(start, make_envs):
    """What one process would do, although each host is replaced between two episodes."""
    envs, reference, states = None, Reference(2), None
    for episode in range(3):
        host = start("a_", "to", states=states)
        if envs is None:
            envs = make_envs(["a_", "to"])
        reference.reset(envs, seed=1 if episode == 0 else None)
        for _ in range(3):
            reference.step(envs)
        os.kill(host.pid, signal.SIGUSR1)
        states = pickle.loads(host.receive(LONG_S, "ending"))


def test_a_host_without_environments_ends_or_stays(start, make_envs):
    staying, leaving = start("b", stay=True), start("a_")
    for hosted in (["b", "a_"], ["b"]):
        envs, reference = make_envs(hosted), Reference(2)
        reference.reset(envs, seed=1)
        reference.step(envs)
        envs.close()
        if "a_" in hosted:
            assert pickle.loads(leaving.receive(LONG_S, "serving"))
    assert staying.alive
    lonely = start("b", run="another", wait_s=0.3)
    with pytest.raises(HostError, match=r"the environment side was not heard of for 0\.3 s"):
        lonely.receive(LONG_S, "serving")


def step_until_killed(connection, settings):
    """Be the environment side of a run."""
    envs = VectorizedKafkaEnv(create_agents, list(TREE), 2, "kafka", env_class=World, **settings)
    envs.reset(seed=9)
    draws = np.random.default_rng(1)
    while True:
        envs.step([draw_actions(TREE, draws) for _ in range(2)])
        connection.send_bytes(b"stepped")


def test_a_killed_environment_side_is_replaced(start, make_envs, kafka_address, run):
    host = start("a_", "b")
    broker = {"bootstrap": kafka_address, "run": run, "timeout_s": TIMEOUT_S}
    settings = {"hosted": ["a_", "b"], "broker_kwargs": broker}
    first = Child(step_until_killed, (settings,), name="environment side")
    for _ in range(3):
        assert first.receive(LONG_S, "stepping") == b"stepped"
    first.end(0.0)
    envs, reference = make_envs(["a_", "b"]), Reference(2)
    reference.reset(envs, seed=1)
    for _ in range(3):
        reference.step(envs)
    envs.close()
    assert host.receive(LONG_S, "serving")


def test_steps_go_on_over_connections_that_are_cut(run):
    with DisturbedBroker("mock") as disturbed, hosts_of(disturbed.address, run) as start:
        start("a_", "b")
        broker = {"bootstrap": disturbed.address, "run": run, "timeout_s": TIMEOUT_S}
        with VectorizedKafkaEnv(
            create_agents,
            list(TREE),
            2,
            "kafka",
            env_class=World,
            hosted=["a_", "b"],
            broker_kwargs=broker,
        ) as envs:
            reference = Reference(2, max_steps=None)
            reference.reset(envs, seed=1)
            for _ in range(4):
                reference.step(envs)
                disturbed.proxy.cut()


def test_the_topics_are_deleted_by_the_last_that_uses_them(broker_address, run):
    address = broker_address("tansu")  # the mock broker deletes no topics
    broker = {"bootstrap": address, "run": run, "timeout_s": TIMEOUT_S}
    with hosts_of(address, run) as start:
        host = start("b", stay=True)
        with VectorizedKafkaEnv(
            create_agents, list(TREE), 1, "kafka", hosted=["b"], broker_kwargs=broker
        ):
            assert len(topics_of(address, run)) == 5
        assert len(topics_of(address, run)) == 5
        os.kill(host.pid, signal.SIGUSR1)
        host.receive(LONG_S, "ending")
        until(lambda: not host.alive)
        assert not topics_of(address, run)


# ---------------------------------------------------------------- keys


def test_records_without_the_key_are_dropped_as_forged(start, make_envs, kafka_address, run):
    key = "a-secret-of-the-run"
    start("b", key="another-secret-of-one", name="stranger")
    with pytest.raises(
        HostError, match=r"no hosts, and \d+ records were not signed with the run's key"
    ):
        make_envs(["b"], timeout_s=SHORT_S, key=key)
    start("b", key=key)
    envs, reference = make_envs(["b"], key=key), Reference(2)
    reference.reset(envs, seed=1)
    put_foreign_records(kafka_address, run, [(b"rollout_0", b"plm\x02" + bytes(60))])
    for _ in range(3):
        reference.step(envs)
    assert envs.kafka_broker.statistics()["transport_forged"] > 0


# ---------------------------------------------------------------- the command


def test_the_command_keeps_states_in_a_file(make_envs, kafka_address, run, tmp_path):
    """What one process would do, with a command for each episode."""
    command = [
        sys.executable,
        "-m",
        "parllel",
        "messaging",
        "host",
        "--bootstrap",
        kafka_address,
    ]
    command += [
        "--run",
        run,
        "--agents",
        "a*",
        "--agents",
        "b",
        "--name",
        "command",
        "--states",
    ]
    command += [
        str(tmp_path / "states"),
        f"{Path(__file__).with_name('host_child.py')}:create_agents",
    ]
    envs, reference = None, Reference(2)
    for episode in range(2):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as host:
            try:
                if envs is None:
                    envs = make_envs(["a*", "b"], timeout_s=LONG_S)
                reference.reset(envs, seed=1 if episode == 0 else None)
                for _ in range(3):
                    reference.step(envs)
                host.send_signal(signal.SIGTERM)
                assert host.wait(LONG_S) == 0
                assert "host 'command' serves a*, b for run" in host.stderr.read()
            finally:
                host.kill()


class _StoppedError(Exception):
    pass


def test_a_host_checks_for_its_end_while_nobody_needs_it(kafka_address):
    calls = []

    def check():
        calls.append(None)
        if len(calls) == 3:
            raise _StoppedError

    settings = {"bootstrap": kafka_address, "run": uuid.uuid4().hex, "wait_s": 20.0}
    with AgentHost(create_agents, ["a*"], **settings) as host, pytest.raises(_StoppedError):
        host.serve(check)
