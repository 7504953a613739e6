"""Many environments of agents, whose messages go over one broker, hop by hop together."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from gymnasium.vector import AutoresetMode

from parllel.distributed.messaging.agent import Agent, ExecutionMode
from parllel.distributed.messaging.env_state import whole_state
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.kafka_multi_agent_env import KafkaMultiAgentEnv, StepResult
from parllel.distributed.messaging.step_algorithm import step_environments
from parllel.distributed.messaging.topic import check_id
from parllel.distributed.messaging.vector_face import VectorFace
from parllel.envs.states.env_state import load_env_state
from parllel.errors import ClosedError
from parllel.types import Closing, State

Actions = Mapping[str, Any] | None


class VectorizedKafkaEnv(Closing):
    """Environments with the ids `rollout_0`, `rollout_1`, ..., stepped together.

    `step` and `reset` have lists with one dict by root per environment. `as_vector_env()` is a native
    vector environment of gymnasium, for cages.

    Any subset can be reset, and stepped: an environment does the same as it would alone.

    Args:
        agent_factory: takes the id of an environment, returns new agents for it, by id.
        root_agent_ids: those whose parent is the environment.
        kafka_mode: of the broker that is made here, "memory" or "kafka", see KafkaBroker.
        env_class, env_kwargs: for physics of your own; called as KafkaMultiAgentEnv, with `env_kwargs` added.
        broker: use this one, and leave it open in `close`.
        env_prefix: what stands before the numbers in the ids. Those that share a broker need different ones.
        broker_per_env: make a broker for each environment instead of one for all.
        broker_kwargs: for the brokers that are made here, as `{"encoded": False}`.
        execution_mode: put all agents into this mode; None leaves them in theirs. In SYNC no broker is made.

    Raises:
        ValueError: if an argument does not fit, or as KafkaMultiAgentEnv does.
        WrongStateError: if the broker has an environment of one of the ids.
    """

    def __init__(
        self,
        agent_factory: Callable[[str], Mapping[str, Agent]],
        root_agent_ids: Sequence[str],
        num_envs: int = 128,
        kafka_mode: str = "memory",
        *,
        env_class: Callable[..., KafkaMultiAgentEnv] = KafkaMultiAgentEnv,
        env_kwargs: Mapping[str, Any] | None = None,
        broker: KafkaBroker | None = None,
        env_prefix: str = "rollout_",
        broker_per_env: bool = False,
        broker_kwargs: Mapping[str, Any] | None = None,
        execution_mode: ExecutionMode | None = None,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ValueError(f"num_envs: expected an int of at least 1, got {num_envs!r}")
        if broker is not None and (broker_per_env or broker_kwargs):
            raise ValueError("broker: cannot be combined with broker_per_env or broker_kwargs")
        self.num_envs = num_envs
        self._ids = [check_id("env_prefix", env_prefix) + str(i) for i in range(num_envs)]
        self.root_agent_ids = list(root_agent_ids)
        self.envs: list[KafkaMultiAgentEnv] = []
        self._closed = False
        self._owned = ExitStack()
        with ExitStack() as stack:
            stack.callback(self.close)
            all_agents = [
                self._make_agents(agent_factory, env_id, execution_mode) for env_id in self._ids
            ]
            brokers = [broker] * num_envs
            if broker is None and _needs_broker(all_agents):
                made = [
                    self._own(KafkaBroker(mode=kafka_mode, **dict(broker_kwargs or {})))
                    for _ in range(num_envs if broker_per_env else 1)
                ]
                brokers = [made[i % len(made)] for i in range(num_envs)]
            for i, agents in enumerate(all_agents):
                env = env_class(
                    agents=agents,
                    root_agents=self.root_agent_ids,
                    kafka_broker=brokers[i],
                    env_id=self._ids[i],
                    **dict(env_kwargs or {}),
                )
                self.envs.append(env)
            stack.pop_all()
        self.brokers = brokers

    @property
    def kafka_broker(self) -> KafkaBroker | None:
        """The broker of all environments, of the first one with one broker each; None in SYNC."""
        return self.envs[0].kafka_broker

    def step(self, actions: Sequence[Actions]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Step the environments; return observations, rewards, dones and infos, each a list of dicts by root.

        actions: for each environment a dict with an action for each root, or None to leave the environment
        as it is; it then has None in all lists. `envs[i].terminated` and `envs[i].truncated` say how an
        episode ended.

        Raises:
            WrongStateError: if one whose episode has ended is not left out, and was not reset.
        """
        results = self.step_some(actions)
        observations = [None if r is None else r.observations for r in results]
        rewards = [None if r is None else r.rewards for r in results]
        dones = [
            None if r is None else dict.fromkeys(r.observations, r.terminated or r.truncated)
            for r in results
        ]
        infos = [None if r is None else r.infos for r in results]
        return observations, rewards, dones, infos

    def step_some(self, actions: Sequence[Actions]) -> list[StepResult | None]:
        """Step the environments whose actions are not None; return what each gave."""
        self._check_open()
        if not isinstance(actions, Sequence) or len(actions) != self.num_envs:
            raise ValueError(
                f"actions: expected a list of {self.num_envs}, one dict or None for each environment, got "
                f"{actions!r:.200}"
            )
        chosen = [i for i, of_one in enumerate(actions) if of_one is not None]
        results: list[StepResult | None] = [None] * self.num_envs
        if not chosen:
            return results
        stepped = step_environments([self.envs[i] for i in chosen], [actions[i] for i in chosen])
        for i, result in zip(chosen, stepped, strict=True):
            results[i] = result
        return results

    def reset(
        self,
        env_idx: Sequence[int] | None = None,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Reset these environments, all by default; return their observations, in the order of `env_idx`.

        seed: for environment `i` `seed + i`, or one for each of `env_idx`.
        """
        self._check_open()
        chosen = self._chosen(env_idx)
        if seed is None:
            seeds: list[int | None] = [None] * len(chosen)
        elif isinstance(seed, Iterable):
            seeds = [None if one is None else operator.index(one) for one in seed]
        else:
            seeds = [operator.index(seed) + i for i in chosen]
        if len(seeds) != len(chosen):
            raise ValueError(f"seed: expected one for each of {chosen}, got {seeds}")
        return [
            self.envs[i].reset(seed=of_one, options=options)[0]
            for i, of_one in zip(chosen, seeds, strict=True)
        ]

    def _chosen(self, env_idx: Sequence[int] | None) -> list[int]:
        if env_idx is None:
            return list(range(self.num_envs))
        chosen = [operator.index(i) for i in env_idx]
        if len(set(chosen)) < len(chosen) or not all(0 <= i < self.num_envs for i in chosen):
            raise ValueError(
                f"env_idx: expected different numbers from 0 to {self.num_envs - 1}, got {chosen}"
            )
        return chosen

    def set_env_id(self, index: int, env_id: str) -> None:
        """Give one environment another id, as `KafkaMultiAgentEnv.set_env_id`."""
        self.envs[index].set_env_id(env_id)

    def as_vector_env(
        self,
        root: str | None = None,
        *,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        others: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> VectorFace:
        """Return a `gymnasium.vector.VectorEnv` of these environments; closing it closes them.

        With one root, or `root` named, it has that root's spaces and rewards; else Dict spaces by root and
        the sum of the roots' rewards.

        others: with `root`, a function from observation to action for each of the other roots.
        """
        return VectorFace(self, root, autoreset_mode, others or {})

    def state(self) -> State:
        """Return the states of all environments.

        Raises:
            NoStateError: naming what does not say its state.
        """
        self._check_open()
        return {"envs": [whole_state(env) for env in self.envs]}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned, of as many environments made alike."""
        self._check_open()
        states = state.get("envs")
        if not isinstance(states, list) or len(states) != self.num_envs:
            raise ValueError(
                f"expected the states of {self.num_envs} environments, got {states!r:.200}"
            )
        for env, of_one in zip(self.envs, states, strict=True):
            load_env_state(env, of_one)

    def close(self) -> None:
        """Close the environments, and the brokers that were made here. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        with self._owned:
            for env in self.envs:
                self._owned.callback(env.close)

    def _own(self, broker: KafkaBroker) -> KafkaBroker:
        self._owned.callback(broker.close)
        return broker

    def _make_agents(
        self,
        agent_factory: Callable[[str], Mapping[str, Agent]],
        env_id: str,
        mode: ExecutionMode | None,
    ) -> Mapping[str, Agent]:
        agents = agent_factory(env_id)
        if mode is not None:
            for agent in agents.values():
                agent.execution_mode = ExecutionMode(mode)
        return agents

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("VectorizedKafkaEnv: it was closed")


def _needs_broker(all_agents: Sequence[Mapping[str, Agent]]) -> bool:
    return any(
        agent.execution_mode is ExecutionMode.ASYNC
        for agents in all_agents
        for agent in agents.values()
    )
