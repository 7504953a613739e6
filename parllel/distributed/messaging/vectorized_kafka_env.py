"""Many multi-agent environments that are stepped together over one broker, hop by hop.

`VectorizedKafkaEnv` works with dicts by root; `KafkaVectorEnv` makes it a Gymnasium vector environment.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from parllel.distributed.messaging.agent import Agent, ExecutionMode
from parllel.distributed.messaging.env_state import whole_state
from parllel.distributed.messaging.kafka_broker import KafkaBroker
from parllel.distributed.messaging.kafka_multi_agent_env import (
    KafkaMultiAgentEnv,
    RootsStep,
    reset_environments,
)
from parllel.distributed.messaging.step_algorithm import step_environments
from parllel.distributed.messaging.topic import check_id
from parllel.envs.states.env_state import load_env_state
from parllel.envs.states.plain_values import freeze, thaw
from parllel.errors import ClosedError, WrongStateError
from parllel.types import Closeable, State

Actions = Mapping[str, Any] | None

# In the info, each with a bool for each agent, as `parllel.envs.multi_agent_info` allocates them.
_FLAGS = ("alive", "terminated", "truncated")


class VectorizedKafkaEnv(Closeable):
    """Environments `rollout_0`, `rollout_1`, ..., stepped together.

    `step` and `reset` use lists that hold one dict per environment, keyed by root.
    `as_vector_env()` returns a Gymnasium vector environment, for cages.

    Any subset can be reset or stepped, and each environment behaves as it would on its own.

    Args:
        agent_factory: function that takes the id of an environment and returns new agents for it,
            keyed by id.
        root_agent_ids: ids of the agents whose parent is the environment.
        kafka_mode: mode of the broker created here, "memory" or "kafka"; see KafkaBroker.
        env_class, env_kwargs: environment class with your physics, and extra arguments for it.
        broker: an existing broker to use. `close` leaves it open.
        env_prefix: prefix of the ids. Objects that share a broker need different prefixes.
        broker_per_env: create a broker for each environment instead of one for all.
        broker_kwargs: arguments for the brokers created here, such as `{"encoded": False}`.
        execution_mode: mode for all agents. None keeps the mode of each agent. In SYNC no broker is
            created.
        hosted: patterns of the ids of agents that an `AgentHost` runs, see KafkaMultiAgentEnv.
            Requires Kafka, and `"run"` in `broker_kwargs`.
        trained: patterns of the ids of agents whose policies are trained, see KafkaMultiAgentEnv.
            All dicts are then keyed by these agents instead of the roots.

    Raises:
        ValueError: for an invalid argument, or for the reasons listed at KafkaMultiAgentEnv.
        WrongStateError: if one of the ids is in use on the broker.
        HostError: as for KafkaMultiAgentEnv.
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
        hosted: Sequence[str] = (),
        trained: Sequence[str] = (),
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ValueError(f"num_envs: expected an int of at least 1, got {num_envs!r}")
        if broker is not None and (broker_per_env or broker_kwargs):
            raise ValueError("broker: cannot be combined with broker_per_env or broker_kwargs")
        broker_kwargs, env_kwargs = dict(broker_kwargs or {}), dict(env_kwargs or {})
        if hosted:
            if broker_per_env:
                raise ValueError("hosted: cannot be combined with broker_per_env")
            env_kwargs["hosted"] = hosted
            broker_kwargs.setdefault("hosts", True)
        if trained:
            env_kwargs["trained"] = trained
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
                    self._own(KafkaBroker(mode=kafka_mode, **broker_kwargs))
                    for _ in range(num_envs if broker_per_env else 1)
                ]
                brokers = [made[i % len(made)] for i in range(num_envs)]
            for i, agents in enumerate(all_agents):
                env = env_class(
                    agents=agents,
                    root_agents=self.root_agent_ids,
                    kafka_broker=brokers[i],
                    env_id=self._ids[i],
                    **env_kwargs,
                )
                self.envs.append(env)
            stack.pop_all()
        self.brokers = brokers

    @property
    def kafka_broker(self) -> KafkaBroker | None:
        """The shared broker, or the first environment's if each has its own. None in SYNC."""
        return self.envs[0].kafka_broker

    def step(self, actions: Sequence[Actions]) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        """Step the environments. Returns lists of observations, rewards, dones and infos.

        Each list has one dict per environment, keyed by root. `envs[i].terminated` and
        `envs[i].truncated` show how an episode ended.

        actions: a dict per environment with an action for each root. None skips an environment,
            which then has None in all lists.

        Raises:
            WrongStateError: if the episode of a stepped environment has ended.
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

    def step_some(self, actions: Sequence[Actions]) -> list[RootsStep | None]:
        """Step the environments whose actions are not None. Returns a result or None for each."""
        self._check_open()
        if not isinstance(actions, Sequence) or len(actions) != self.num_envs:
            raise ValueError(
                f"actions: expected a list of {self.num_envs}, one dict or None for each environment, got "
                f"{actions!r:.200}"
            )
        chosen = [i for i, action in enumerate(actions) if action is not None]
        results: list[RootsStep | None] = [None] * self.num_envs
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
        """Reset environments, by default all. Returns their observations in the order of `env_idx`.

        seed: an int, to which the index of each environment is added, or a list with one seed for
            each of `env_idx`.
        """
        self._check_open()
        chosen = self._chosen(env_idx)
        if seed is None:
            seeds: list[int | None] = [None] * len(chosen)
        elif isinstance(seed, Iterable):
            seeds = [None if value is None else operator.index(value) for value in seed]
        else:
            seeds = [operator.index(seed) + i for i in chosen]
        if len(seeds) != len(chosen):
            raise ValueError(
                f"seed: expected one seed for each of the environments {chosen}, got {seeds}"
            )
        return reset_environments([self.envs[i] for i in chosen], seeds, options)

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
        """Change the id of one environment; see `KafkaMultiAgentEnv.set_env_id`."""
        self.envs[index].set_env_id(env_id)

    def as_vector_env(
        self,
        root: str | None = None,
        *,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        others: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> KafkaVectorEnv:
        """Return a `gymnasium.vector.VectorEnv` of these environments. Closing it closes them.

        If there is only one root, or `root` names one, the result has the spaces and rewards of that root.
        Otherwise it has Dict spaces keyed by root, and its reward is the sum of the roots' rewards. If
        there are trained agents, they take the roots' place.

        others: for each root other than `root`, a function that maps an observation to an action.
            Required with `root`.
        """
        return KafkaVectorEnv(self, root, autoreset_mode, others or {})

    def state(self) -> State:
        """Return the states of all environments.

        Raises:
            NoStateError: if a part of an environment has no state methods. Names that part.
        """
        self._check_open()
        return {"envs": [whole_state(env) for env in self.envs]}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state` for the same number of environments, built the same way."""
        self._check_open()
        states = state.get("envs")
        if not isinstance(states, list) or len(states) != self.num_envs:
            raise ValueError(
                f"expected the states of {self.num_envs} environments, got {states!r:.200}"
            )
        for env, env_state in zip(self.envs, states, strict=True):
            load_env_state(env, env_state)

    def close(self) -> None:
        """Close the environments and the brokers created here. Idempotent."""
        if self._closed:
            return
        self._closed = True
        # The stack runs backwards: environments give their ids back before the brokers close.
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
            raise ClosedError("VectorizedKafkaEnv: used after it was closed")


def _needs_broker(all_agents: Sequence[Mapping[str, Agent]]) -> bool:
    return any(
        agent.execution_mode is ExecutionMode.ASYNC
        for agents in all_agents
        for agent in agents.values()
    )


class KafkaVectorEnv(VectorEnv[Any, Any, Any]):
    """A Gymnasium vector environment of agents over a broker. Returned by `VectorizedKafkaEnv.as_vector_env`.

    `reset` takes a seed, or one for each environment, and `options={"reset_mask": [n] bool}` to reset only
    some; the others keep their last observation.

    An info is that of the root, without "observation" and "reward". With Dict spaces, infos are
    keyed by root, and also hold the dicts of `parllel.envs.multi_agent_info`, which `MultiAgentPPO`
    reads. In SAME_STEP mode, the last observation and info of an episode are in `final_obs` and
    `final_info`.

    Observations are new arrays in each step, and actions are copied, so the caller owns both.
    """

    def __init__(
        self,
        envs: VectorizedKafkaEnv,
        root: str | None,
        autoreset_mode: AutoresetMode,
        others: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        first = envs.envs[0]
        roots = first.policy_agents
        self._envs = envs
        self._root = _root_of(roots, root)
        self._others = dict(others)
        expected = set() if self._root is None else set(roots) - {self._root}
        if set(others) != expected:
            raise ValueError(
                f"others: expected functions for the agents {sorted(expected)}, got functions for "
                f"{sorted(others)}"
            )
        reserved = {"reward", *_FLAGS}.intersection(roots) if self._root is None else ()
        if reserved:
            raise ValueError(
                f"as_vector_env: agent {min(reserved)!r}: expected other ids than 'reward', 'alive', "
                "'terminated' and 'truncated', which are keys of the info"
            )
        self.num_envs = envs.num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space = self._space(first, "observation")
        self.single_action_space = self._space(first, "action")
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        # The roots' last observations in each environment; None before its first reset.
        self._seen: list[dict[str, Any] | None] = [None] * self.num_envs
        # [n] True if the episode has ended: the next step resets it, or is an error if autoreset is disabled.
        self._ended = np.zeros(self.num_envs, bool)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes in all environments, or where `options["reset_mask"]` is True."""
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        chosen = np.flatnonzero(_checked(mask, self.num_envs)).tolist()
        seeds = [None] * self.num_envs if seed is None else seed
        if isinstance(seeds, (int, np.integer)):
            seeds = [int(seeds) + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"seed: expected one seed for each of {self.num_envs} environments, got "
                f"{len(seeds)}"
            )
        self._reset_some(chosen, [seeds[i] for i in chosen], options)
        missing = [i for i, seen in enumerate(self._seen) if seen is None]
        if missing:
            raise WrongStateError(
                f"reset: environments {missing} were never reset; reset all environments once, "
                "without reset_mask"
            )
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments. Ended ones are reset according to `autoreset_mode`."""
        if self._ended.any() and self.autoreset_mode is AutoresetMode.DISABLED:
            raise WrongStateError(
                f"step: environments {np.flatnonzero(self._ended).tolist()} have ended; reset them with "
                'options={"reset_mask": ...} first'
            )
        # Only in NEXT_STEP: SAME_STEP has reset them already, and DISABLED has raised.
        due = np.flatnonzero(self._ended).tolist()
        results = self._envs.step_some(self._actions(actions, due))
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros(self.num_envs, bool), np.zeros(self.num_envs, bool)
        infos: dict[str, Any] = {}
        self._reset_some(due, [None] * len(due), {})
        ended = []
        for i, result in enumerate(results):
            if result is None:
                continue
            self._seen[i] = result.observations
            rewards[i] = self._reward(result)
            terminated[i], truncated[i] = result.terminated, result.truncated
            info = self._info(result)
            if self.autoreset_mode is AutoresetMode.SAME_STEP and (terminated[i] or truncated[i]):
                ended.append(i)
                info = {"final_obs": self._view(result.observations), "final_info": info}
            if info:
                infos = self._add_info(infos, info, i)
        self._ended = (terminated | truncated) if not ended else np.zeros(self.num_envs, bool)
        self._reset_some(ended, [None] * len(ended), {})
        return self._observations(), rewards, terminated, truncated, infos

    def state(self) -> State:
        """Return the states of all environments, with their last observations."""
        return {
            "envs": self._envs.state(),
            "seen": freeze(self._seen, "seen"),
            "ended": self._ended.copy(),
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._envs.load_state(state["envs"])
        self._seen = thaw(state["seen"])
        self._ended = np.array(state["ended"], bool)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self._envs.close()

    def _space(self, first: KafkaMultiAgentEnv, kind: str) -> gym.Space[Any]:
        roots = first.policy_agents if self._root is None else [self._root]
        spaces = {root: getattr(first.agents[root], f"{kind}_space") for root in roots}
        missing = [root for root, space in spaces.items() if space is None]
        if missing:
            raise ValueError(
                f"as_vector_env: agents {missing} have no {kind}_space; pass one to the agents"
            )
        return gym.spaces.Dict(spaces) if self._root is None else spaces[self._root]

    def _reset_some(
        self, chosen: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any]
    ) -> None:
        if not chosen:
            return
        observations = self._envs.reset(chosen, seed=seeds, options=options)
        for i, observation in zip(chosen, observations, strict=True):
            self._seen[i] = observation
        self._ended[chosen] = False

    def _actions(self, actions: Any, due: Sequence[int]) -> list[dict[str, Any] | None]:
        """Return the roots' actions for each environment, None for those that are reset instead."""
        # Copied, because agents may keep their actions while the caller reuses its arrays.
        copied = copy.deepcopy(actions)
        by_root: list[dict[str, Any] | None] = []
        for i, action in enumerate(iterate(self.action_space, copied)):
            if self._root is None:
                by_root.append(dict(action))
                continue
            seen = self._seen[i]
            assert seen is not None
            others = {name: act(seen[name]) for name, act in self._others.items()}
            by_root.append({self._root: action, **others})
        for i in due:
            by_root[i] = None
        return by_root

    def _observations(self) -> Any:
        space = self.single_observation_space
        views = [self._view(seen) for seen in self._seen]
        empty: Any = create_empty_array(space, self.num_envs, fn=np.empty)
        return concatenate(space, views, empty)

    def _view(self, observations: Any) -> Any:
        return observations if self._root is None else observations[self._root]

    def _reward(self, result: RootsStep) -> float:
        return sum(result.rewards.values()) if self._root is None else result.rewards[self._root]

    def _info(self, result: RootsStep) -> dict[str, Any]:
        if self._root is None:
            flags = (True, result.terminated, result.truncated and not result.terminated)
            return {
                **{root: _rest(info) for root, info in result.infos.items()},
                "reward": dict(result.rewards),
                **{
                    name: dict.fromkeys(result.rewards, flag)
                    for name, flag in zip(_FLAGS, flags, strict=True)
                },
            }
        return _rest(result.infos[self._root])


def _root_of(roots: Sequence[str], root: str | None) -> str | None:
    if root is not None and root not in roots:
        raise ValueError(f"root: expected one of {list(roots)}, got {root!r}")
    return roots[0] if root is None and len(roots) == 1 else root


def _checked(mask: Any, n: int) -> Any:
    if mask is None:
        return np.ones(n, bool)
    if (
        not isinstance(mask, np.ndarray)
        or mask.dtype != bool
        or mask.shape != (n,)
        or not mask.any()
    ):
        raise ValueError(
            f"options['reset_mask']: expected a bool array [{n}] with at least one True, got "
            f"{mask!r}"
        )
    return mask


def _rest(info: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name not in ("observation", "reward")}
