"""Ways to reach a policy: each steps CartPole with its actions and returns the number of steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym

from benchmarks.distributed.lean import Lean
from benchmarks.harness.machine import usable_cores
from benchmarks.remote.processes import parllel_server
from parllel import BatchSpec
from parllel.agents import NumpyHandler, weights_of
from parllel.cages import CageInterface, SynchronizedProcessCage, VectorizedCage
from parllel.distributed.messaging import ExecutionMode
from parllel.distributed.operators import OperatorConfig, OperatorLauncher
from parllel.distributed.remote import Agent, RemotePolicy, make
from parllel.distributed.rollouts import (
    FragmentSender,
    RolloutWorker,
    SynchronousSchedule,
    WorkerContext,
)
from parllel.policies import Policy, PolicyAgent
from parllel.runs.reference import import_script
from parllel.samplers import BasicSampler
from parllel_patterns import allocate_samples

ROOT = Path(__file__).resolve().parents[2]
CARTPOLE = "CartPole-v1"
GAME = f"gymnasium/{CARTPOLE}"
POLICY = f"{ROOT / 'benchmarks' / 'distributed' / 'lean.py'}:Lean"
T = 16  # steps of each environment in a batch
WAIT_S = 120.0
make_env = partial(gym.make, CARTPOLE)


def sampler_of(cages: list[CageInterface], policy: Policy, n: int, **options: Any) -> BasicSampler:
    """Return a sampler in which a policy acts."""
    spec, handler = BatchSpec(T, n), NumpyHandler(PolicyAgent(policy))
    return BasicSampler(spec, cages, handler, allocate_samples(cages, spec, handler, **options))


class Sampled:
    """Batches of a sampler.

    Args:
        cage: has n environments.
        policy: closed with it.
    """

    def __init__(self, cage: CageInterface, policy: Policy, n: int) -> None:
        self._policy, self._units = policy, T * n
        self._sampler = sampler_of([cage], policy, n)

    def __call__(self) -> int:
        """Collect one."""
        self._sampler.collect_batch(0)
        return self._units

    def close(self) -> None:
        """Close the sampler with its cage, and the policy."""
        self._sampler.close()
        self._policy.close()


def in_process(n: int) -> Sampled:
    """Return environments in this process."""
    return Sampled(VectorizedCage([make_env] * n, seeds=range(n)), Lean(), n)


def in_workers(n: int) -> Sampled:
    """Return environments in worker processes, at most one for each core."""
    cage = SynchronizedProcessCage(
        [make_env] * n, n_workers=n_workers(n), seeds=range(n), timeout_s=WAIT_S
    )
    return Sampled(cage, Lean(), n)


def n_workers(n: int) -> int:
    """Return over how many processes n environments are spread."""
    return min(n, len(usable_cores()))


def over_json(n: int, url: str) -> Sampled:
    """Return environments in this process, whose actions a server is asked for: one request for all."""
    policy = RemotePolicy(url, Lean.observation_space, Lean.action_space, timeout_s=WAIT_S)
    return Sampled(VectorizedCage([make_env] * n, seeds=range(n)), policy, n)


def served() -> AbstractContextManager[str]:
    """Return a server of the policy, which gives its URL."""
    patience = json.dumps({"agentTimeout": WAIT_S, "actTimeout": WAIT_S})
    return parllel_server("--configuration", patience, environment=GAME, agent=POLICY)


class OverProtobuf:
    """Environments in this process, whose actions a server is asked for by protobuf, one at a time."""

    def __init__(self, n: int, url: str) -> None:
        self._envs = [make_env() for _ in range(n)]
        self._seen = [env.reset(seed=i)[0] for i, env in enumerate(self._envs)]
        self._stack = ExitStack()
        game = self._stack.enter_context(make(GAME, {"actTimeout": WAIT_S}))
        self._agent = self._stack.enter_context(Agent({"type": "proto", "url": url}, game))

    def __call__(self) -> int:
        """Step all environments once."""
        for i, env in enumerate(self._envs):
            asked = {"observation": self._seen[i].tolist(), "step": 1, "remainingOverageTime": 0}
            action, _ = self._agent.act(asked)
            self._seen[i], _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                self._seen[i], _ = env.reset()
        return len(self._envs)

    def close(self) -> None:
        """Close the connection."""
        self._stack.close()


class Operators:
    """Operators, each a program with an environment and the policy, which take their steps together."""

    def __init__(self, n: int) -> None:
        self._folder = TemporaryDirectory()
        self._launcher = OperatorLauncher(folder=self._folder.name)
        configs = [OperatorConfig("policy", f"lean-{i}", CARTPOLE, policy=POLICY) for i in range(n)]
        self._handles = [
            self._launcher.launch_operator(config, config.operator_id, interactive=True)
            for config in configs
        ]
        for i, handle in enumerate(self._handles):
            handle.send_reset(i)
        for handle in self._handles:
            reply = handle.read_response(WAIT_S)
            assert reply["type"] == "ready", reply

    def __call__(self) -> int:
        """Let each take a step."""
        for handle in self._handles:
            handle.send_step()
        ended = []
        for handle in self._handles:
            reply = handle.read_response(WAIT_S)
            if reply["terminated"] or reply["truncated"]:
                assert handle.read_response(WAIT_S)["type"] == "episode_end"
                handle.send_reset(1)
                ended.append(handle)
        for handle in ended:
            handle.read_response(WAIT_S)
        return len(self._handles)

    def close(self) -> None:
        """End them."""
        self._launcher.close()
        self._folder.cleanup()


class AsRoot:
    """The policy as the root of hierarchies of two agents, as in the example.

    Args:
        settings: of VectorizedKafkaEnv.
    """

    def __init__(self, n: int, **settings: Any) -> None:
        pilot = import_script(ROOT / "examples" / "messaging" / "pilot.py")
        self._policy = Lean()
        self._envs = pilot.VectorizedKafkaEnv(
            pilot.make_agents,
            ["pilot"],
            n,
            env_class=pilot.PilotedEnv,
            env_kwargs={"make_env": make_env},
            **settings,
        )
        self._seen = self._envs.reset(seed=0)

    def __call__(self) -> int:
        """Step all environments once."""
        actions = [{"pilot": self._policy.act_one(seen["pilot"])} for seen in self._seen]
        self._seen, _, dones, _ = self._envs.step(actions)
        if ended := [i for i, done in enumerate(dones) if done["pilot"]]:
            for i, seen in zip(ended, self._envs.reset(ended), strict=True):
                self._seen[i] = seen
        return len(actions)

    def close(self) -> None:
        """Close the environments, and their broker."""
        self._envs.close()


def by_calls(n: int) -> AsRoot:
    """Return the same, whose agents call each other."""
    return AsRoot(n, execution_mode=ExecutionMode.SYNC)


def over_kafka(n: int, address: str) -> AsRoot:
    """Return the same, over a Kafka broker."""
    kafka = {"bootstrap": address, "timeout_s": WAIT_S}
    return AsRoot(n, kafka_mode="kafka", broker_kwargs=kafka)


def build_worker(n: int, context: WorkerContext) -> RolloutWorker:
    """Put a rollout worker together."""
    cage = VectorizedCage([make_env] * n, seeds=range(n))
    sampler = sampler_of([cage], Lean(), n, next_observation=True)
    sender = FragmentSender(context.storage)
    context.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        SynchronousSchedule(sampler),
        fragment_length=T,
        seed=0,
        producer=context.name,
        sender=sender,
        statistics=context.statistics,
    )


class OnRay:
    """Fragments of a rollout worker, an actor of the Ray that has been started."""

    def __init__(self, n: int) -> None:
        from parllel.distributed.rollouts.on_ray import (
            RayEpisodeStatistics,
            RayReplayBuffer,
            RayRollouts,
            WorkerOptions,
        )

        self._n, self._stack = n, ExitStack()
        self._buffer = self._stack.enter_context(RayReplayBuffer(4 * n))
        statistics = self._stack.enter_context(RayEpisodeStatistics())
        build: Callable[[WorkerContext], RolloutWorker] = partial(build_worker, n)
        options = WorkerOptions(cpus=0.1)
        self._workers = self._stack.enter_context(
            RayRollouts(build, 1, self._buffer, statistics, options)
        )
        self._workers.load_weights(weights_of(PolicyAgent(Lean())), 1)
        self()

    def __call__(self) -> int:
        """Fetch a fragment of each environment."""
        self._workers.check()
        fragments = self._buffer.fetch(self._n, WAIT_S)
        return sum(fragment.length for fragment in fragments)

    def close(self) -> None:
        """End the worker."""
        self._stack.close()
