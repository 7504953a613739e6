"""Adapter from a multi-agent environment to a single Gymnasium environment."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from parllel.envs.parallel_env import ParallelEnv
from parllel.envs.parallel_env_wrapper import ParallelEnvWrapper
from parllel.envs.rewards import reward_of
from parllel.envs.space_elements import zero_of
from parllel.types import Tree


class ParallelEnvAdapter(ParallelEnvWrapper):
    """Presents a parallel environment as a `gymnasium.Env` with Dict spaces keyed by agent.

    The reward of a step is the sum over agents. An episode ends when no agent is left. It is terminated if
    all agents were terminated, possibly in different steps, and otherwise truncated.

    Info holds dicts keyed by agent. Allocate the entries that you want to store with the samples,
    see `multi_agent_info`:

    - `reward`: float, 0 for agents that have left.
    - `alive`: bool, whether the agent took part in the step, its last one included.
    - `terminated`, `truncated`: bool, whether this step was its last.
    - `info`: the environment's own info, of agents that took part.

    An agent that leaves early gets its last observation once, after its last step. From then on
    it observes zeros, clipped to the bounds of its space, and its actions are ignored.

    In a cage, attributes and methods of the parallel environment are accessible as through a wrapper.

    Args:
        parallel_env: environment in which all `possible_agents` are present after a reset, and none
            returns later in the episode.

    Raises:
        ValueError: if there are no agents, or a name is not a valid field name; while in use, if
            agents appear later, vanish without an end, or are missing from a result.
    """

    def __init__(self, parallel_env: ParallelEnv) -> None:
        self.parallel_env = parallel_env
        self.agents = _names_of(parallel_env)
        self.observation_space = _by_agent(self.agents, parallel_env.observation_space)
        self.action_space = _by_agent(self.agents, parallel_env.action_space)
        self.metadata = getattr(parallel_env, "metadata", {})
        self._name = str(self.metadata.get("name", type(parallel_env).__name__))
        # Not every environment with PettingZoo's interface has these two.
        self.render_mode = getattr(parallel_env, "render_mode", None)
        self._absent = {
            agent: zero_of(space) for agent, space in self.observation_space.spaces.items()
        }
        self._live: list[str] = []  # who acts in the next step
        self._terminated: set[str] = set()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Begin an episode with all agents."""
        # Seeds `np_random` of the adapter; the parallel environment has its own generators.
        super().reset(seed=seed)
        observations, infos = self.parallel_env.reset(seed=seed, options=options)
        there = set(self.parallel_env.agents)
        if there != set(self.agents):
            raise ValueError(
                f"reset: expected all possible agents {list(self.agents)}, got {sorted(there)}; "
                "agents that appear later are not supported"
            )
        missing = [agent for agent in self.agents if agent not in observations]
        if missing:
            raise ValueError(
                f"reset: expected an observation for each agent, got {sorted(observations)}; "
                f"{missing} are missing"
            )
        self._live = list(self.agents)
        self._terminated.clear()
        observation = {agent: observations[agent] for agent in self.agents}
        return observation, {"alive": dict.fromkeys(self.agents, True), "info": dict(infos)}

    def step(self, action: Mapping[str, Any]) -> tuple[Tree, float, bool, bool, dict[str, Any]]:
        """Step with the actions of the remaining agents."""
        live = self._live
        answer = self.parallel_env.step({agent: action[agent] for agent in live})
        observations, rewards, terminations, truncations, infos = answer
        # A shallow copy: cages copy the arrays, and nothing writes to them.
        observation = dict(self._absent)
        reward = dict.fromkeys(self.agents, 0.0)
        alive, terminated, truncated = [dict.fromkeys(self.agents, False) for _ in range(3)]
        for agent in live:
            try:
                observation[agent] = observations[agent]
                # As Python floats: a sum of float16 scalars would round, or overflow.
                reward[agent] = reward_of(rewards[agent], self._name, agent)
                terminated[agent] = bool(terminations[agent])
                truncated[agent] = bool(truncations[agent])
            except KeyError:
                raise ValueError(
                    f"step: expected an observation, a reward and flags for agent {agent!r}, which "
                    "took part in the step, got only those of "
                    f"{[sorted(part) for part in answer[:4]]}"
                ) from None
            alive[agent] = True
        self._live = [agent for agent in live if not (terminated[agent] or truncated[agent])]
        self._terminated.update(agent for agent in live if terminated[agent])
        self._check_agents(live)
        over = not self._live
        # Over all steps of the episode: an agent truncated earlier makes the episode truncated.
        all_terminated = over and len(self._terminated) == len(self.agents)
        info = {
            "reward": reward,
            "alive": alive,
            "terminated": terminated,
            "truncated": truncated,
            "info": dict(infos),
        }
        total = sum(reward.values())
        return observation, total, all_terminated, over and not all_terminated, info

    def _check_agents(self, before: list[str]) -> None:
        """Check that agents leave only after an end, and that none appears."""
        there = self.parallel_env.agents
        for agent in there:
            # Nothing was stored for the agent in the earlier rows of the episode.
            if agent not in before:
                raise ValueError(
                    f"step: agent {agent!r} was not in the previous step; agents that appear later "
                    "are not supported"
                )
        for agent in self._live:
            if agent not in there:
                raise ValueError(
                    f"step: expected agent {agent!r} to be terminated or truncated before it left"
                )

    def close(self) -> None:
        """Close the environment."""
        self.parallel_env.close()


def multi_agent_info(agents: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return examples of the info that multi-agent transforms and algorithms read.

    Use it as `allocate_samples(..., env_info=multi_agent_info(spaces.action))`; iterating over a Dict
    space yields its keys. This allocates `env.env_info.reward.<agent>` [T, B] float32, and `alive`,
    `terminated` and `truncated` [T, B] bool.
    """
    names = list(agents)
    info: dict[str, dict[str, Any]] = {"reward": dict.fromkeys(names, np.float32(0))}
    for flag in ("alive", "terminated", "truncated"):
        info[flag] = dict.fromkeys(names, np.bool_(False))
    return info


def _names_of(parallel_env: ParallelEnv) -> tuple[str, ...]:
    names = tuple(parallel_env.possible_agents)
    if not names:
        raise ValueError(f"{parallel_env}: possible_agents: expected at least one, got none")
    for name in names:
        # Names of agents become field names and parts of dotted paths.
        if not isinstance(name, str) or not name or "." in name or name.startswith("_"):
            raise ValueError(
                f"{parallel_env}: possible_agents: expected names without dots that do not begin "
                f"with an underscore, got {name!r}"
            )
    return names


def _by_agent(agents: Sequence[str], space_of: Any) -> spaces.Dict:
    # gymnasium keeps the order of an OrderedDict, but sorts a dict: agent_10 before agent_2.
    return spaces.Dict(OrderedDict((agent, space_of(agent)) for agent in agents))
