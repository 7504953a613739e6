"""Trace one step, batch, fragment, request or message each way that docs/architecture.md shows.

Each function returns the calls that threads and processes made, by the names that they have on that page. Of
several steps it takes the one with the fewest calls: on a busy machine a wait may look more than once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from call_trace import CallTrace, ChildTrace

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.policies import Policy
from parllel.testing.dummy_agents import CountingAgent
from parllel.types import Tree
from parllel_patterns import PpoParameters, allocate_samples, build_sampler

Calls = dict[str, list[str]]
T, B = 8, 2
HERE = str(Path(__file__).resolve())
# Of the first episode. What is checked in that one is not checked in the next, which does not end.
FIRST_LENGTH = 3


class TracedEnv(gym.Env[Any, Any]):
    """Episodes that do not end, after a short one.

    Args:
        path: where the trace of a process of its own is written; None in the process of the test.
        steps: the first and the last step of that trace.
    """

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, path: str | None = None, steps: tuple[int, int] = (0, 0)) -> None:
        marks = {TracedEnv.step: "env.step"}
        self._trace = None if path is None else ChildTrace(path, marks, *steps)
        self._n, self._ended = 0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._n = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        if self._trace is not None:
            self._trace.tick()
        self._n += 1
        truncated = not self._ended and self._n == FIRST_LENGTH
        self._ended = self._ended or truncated
        return np.full(4, 0.1, np.float32), 1.0, False, truncated, {}


def shortest(calls: list[str], begins: str, n: int = 1) -> list[str]:
    """Return the part with the fewest calls that `n` turns take, each of which begins with a function."""
    at = [i for i, call in enumerate(calls) if call == begins]
    parts = [calls[first:end] for first, end in zip(at, at[n:], strict=False)]
    assert parts, f"{begins} was called {len(at)} times"
    return min(parts, key=len)


def read(path: str, begins: str) -> list[str]:
    """Return two turns of the trace that another process has written."""
    return shortest(json.loads(Path(path).read_text()), begins, 2)


def learning_parts(cages: Sequence[Any]) -> Any:
    """Return a sampler for PPO with a small model, and the algorithm."""
    # Here, as the processes of environments and agents import this module too.
    from parllel.torch import PPO, TorchHandler, agent_for
    from parllel.transforms import EstimateAdvantage, NormalizeAdvantage

    agent = agent_for(cages[0].spaces, seeds=Seeds(0), hidden_sizes=(32,))
    transforms = [EstimateAdvantage(0.9, 0.9), NormalizeAdvantage()]
    spec = BatchSpec(T, sum(cage.n for cage in cages))
    sampler = build_sampler(spec, cages, TorchHandler(agent), [], transforms)
    parameters = PpoParameters(
        learning_rate=1e-3, learning_rate_anneal_steps=None, epochs=1, minibatches=1
    )
    return sampler, PPO(agent, **parameters, seed=1)


@cache
def second_batch() -> list[str]:
    """Return the calls while the second batch is made and learned from."""
    sampler, algorithm = learning_parts([VectorizedCage([TracedEnv] * B, seeds=range(B))])
    try:
        samples, _ = sampler.collect_batch(0)
        algorithm.optimize_agent(T * B, samples)
        with CallTrace({TracedEnv.step: "env.step"}) as trace:
            samples, _ = sampler.collect_batch(T * B)
            algorithm.optimize_agent(2 * T * B, samples)
    finally:
        sampler.close()
    return trace.calls["main"]


ACT = "torch.handler.TorchHandler._bind_step.step"


def sampling_in_process(folder: Path) -> Calls:
    """Return the calls of two rows."""
    return {"main": shortest(second_batch(), ACT, 2)}


def batch_to_loss(folder: Path) -> Calls:
    """Return the calls from the last row of a batch on."""
    return {"main": second_batch()}


def sampling_in_workers(folder: Path) -> Calls:
    """Return the calls of two rows, in both processes."""
    path = str(folder / "worker.json")
    make_env = partial(TracedEnv, path, (T + 1, 2 * T))
    sampler, _ = learning_parts([SynchronizedProcessCage([make_env], n_workers=1, seeds=[0])])
    try:
        sampler.collect_batch(0)
        # Another batch than that of the worker's trace, which slows it down and has main wait.
        sampler.collect_batch(T)
        with CallTrace() as trace:
            sampler.collect_batch(2 * T)
    finally:
        sampler.close()
    return {"main": shortest(trace.calls["main"], ACT, 2), "worker": read(path, "env.step")}


def fragment(folder: Path) -> Calls:
    """Return the calls of a rollout worker, its sender thread and a trainer, with one fragment."""
    from parllel.distributed.rollouts import (
        FragmentSampler,
        FragmentSender,
        ReplayBuffer,
        RolloutWorker,
        SynchronousSchedule,
    )
    from parllel.samplers import BasicSampler

    spec = BatchSpec(T, 1)
    cages = [VectorizedCage([TracedEnv], seeds=[0])]
    handler, own = NumpyHandler(CountingAgent(2)), NumpyHandler(CountingAgent(2))
    samples = allocate_samples(cages, spec, handler, next_observation=True)
    schedule = SynchronousSchedule(BasicSampler(spec, cages, handler, samples))
    with ExitStack() as stack:
        buffer = stack.enter_context(ReplayBuffer(4))
        with CallTrace() as trace:
            # Within, so that its thread is traced.
            sender = stack.enter_context(FragmentSender(buffer))
            worker = stack.enter_context(
                RolloutWorker(schedule, fragment_length=T, seed=0, sender=sender)
            )
            trainer = FragmentSampler(spec, buffer, own, allocate_samples(cages, spec, own))
            stack.callback(trainer.close)
            for _ in range(2):
                trace.forget()
                worker.run(T)
                assert sender.flush(10.0)
                trainer.collect_batch(0)
            calls = trace.taken()
    return {"worker": calls["main"], "sender": calls["fragment sender"], "trainer": calls["main"]}


class TracedPolicy(Policy):
    """A policy in the process of an agent, which is told by a variable where to write its trace."""

    observation_space = TracedEnv.observation_space
    action_space = TracedEnv.action_space

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        marks = {TracedPolicy.act: "policy.act"}
        self._trace = ChildTrace(os.environ["PARLLEL_TRACE"], marks, 1, 4)

    def act(self, observation: Tree, env_indices: Any) -> Tree:
        """Return the same actions always."""
        self._trace.tick()
        return np.zeros(len(env_indices), np.int64)


def http_act(folder: Path) -> Calls:
    """Return the calls of a client, a server and the process of its agent, with one request."""
    from parllel.distributed.remote import RemotePolicy
    from parllel.distributed.remote.agent_settings import AgentSettings
    from parllel.distributed.remote.server.actions import Actions
    from parllel.distributed.remote.server.build_server import build_server
    from parllel.distributed.web import ServerSettings, WebServer

    path = str(folder / "agent.json")
    os.environ["PARLLEL_TRACE"] = path
    settings = AgentSettings(writable=(str(folder),), variables=("PARLLEL_TRACE",))
    try:
        with Actions(settings=settings) as actions:
            actions.load_agent(f"{HERE}:TracedPolicy", "rps", None)
            app = build_server(ServerSettings(port=0, handler_threads=1), actions)
            with CallTrace() as trace, WebServer(app) as server:
                spaces = TracedPolicy.observation_space, TracedPolicy.action_space
                requests = []
                with RemotePolicy(server.url, *spaces) as policy:
                    for _ in range(6):
                        trace.forget()
                        policy.act(np.zeros((1, 4), np.float32), [0])
                        requests.append(trace.taken())
    finally:
        del os.environ["PARLLEL_TRACE"]
    # The thread of the server looks at its deadlines now and then; the first request finds no connection.
    calls = {name: min((one[name] for one in requests[1:]), key=len) for name in requests[-1]}
    handler = next(name for name in calls if name.startswith("parllel-web-handler"))
    return {
        "client": calls["main"],
        "server": calls["parllel-web-server"],
        "handler": calls[handler],
        "agent": read(path, "policy.act"),
    }


def operator_step(folder: Path) -> Calls:
    """Return the calls of the thread of an operator's session, and of its worker, in one step."""
    from parllel.distributed.operators import Experiment, OperatorConfig

    path = str(folder / "operator.json")
    env_kwargs = {"path": path, "steps": (5, 9)}
    config = OperatorConfig(
        "baseline",
        "random",
        f"{HERE}:TracedEnv",
        env_kwargs=env_kwargs,
        policy="random",
        max_steps=12,
    )
    with CallTrace() as trace:
        # Two episodes, as the first one is a short one.
        Experiment("walk", [config], seeds=[1, 2]).run(folder)
    step = "distributed.operators.experiments.single_episodes._Episode.step"
    return {
        "session": shortest(trace.calls["operator random"], step),
        "worker": read(path, "env.step"),
    }


def message(folder: Path) -> Calls:
    """Return the calls while one agent sends to another."""
    from parllel.distributed.messaging import KafkaBroker, TopicManager

    with KafkaBroker() as broker:
        channel = broker.channel(TopicManager.action_topic("grid", "device", "rollout_0"))
        for step in range(2):
            with CallTrace() as trace:
                broker.begin_step(["rollout_0"], [step])
                channel.put({"action": 1})
                broker.await_messages([channel])
                channel.take()
    return trace.calls


WAYS: dict[str, Callable[[Path], Calls]] = {
    "An observation": sampling_in_process,
    "An observation, over workers": sampling_in_workers,
    "An action": sampling_in_process,
    "An action, over workers": sampling_in_workers,
    "A batch, to the loss": batch_to_loss,
    "A fragment of a rollout": fragment,
    "An action over HTTP": http_act,
    "A step of an operator": operator_step,
    "A message": message,
}
