"""Environments of agents as a native vector environment of gymnasium."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from parllel.distributed.messaging.kafka_multi_agent_env import KafkaMultiAgentEnv, StepResult
from parllel.envs.states.plain_values import freeze, thaw
from parllel.errors import WrongStateError
from parllel.types import State


class Environments(Protocol):
    """A VectorizedKafkaEnv, as its face sees it."""

    num_envs: int
    envs: list[KafkaMultiAgentEnv]

    def step_some(self, actions: Sequence[Mapping[str, Any] | None]) -> list[StepResult | None]:
        """Step those with actions."""

    def reset(
        self, env_idx: Sequence[int] | None = None, *, seed: Any = None, options: Any = None
    ) -> list[dict[str, Any]]:
        """Reset some."""

    def state(self) -> State:
        """Return the states."""

    def load_state(self, state: State) -> None:
        """Take them back."""

    def close(self) -> None:
        """Close all."""


class VectorFace(VectorEnv[Any, Any, Any]):
    """What `VectorizedKafkaEnv.as_vector_env` returns.

    `reset` takes seeds (one, or one for each environment), and `options={"reset_mask": [n] bool}` for some
    alone; environments that are not reset keep their last observation.

    Infos are those of the root, without "observation" and "reward"; with Dict spaces, by root. In
    SAME_STEP, the last observation and info of an episode are in `final_obs` and `final_info`.

    Observations are new arrays in each step, and actions are copied, so both are the caller's.
    """

    def __init__(
        self,
        envs: Environments,
        root: str | None,
        autoreset_mode: AutoresetMode,
        others: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        first = envs.envs[0]
        roots = first.root_agents
        self._envs = envs
        self._root = _root_of(roots, root)
        self._others = dict(others)
        expected = set() if self._root is None else set(roots) - {self._root}
        if set(others) != expected:
            raise ValueError(
                f"others: expected a function for each of {sorted(expected)}, got {sorted(others)}"
            )
        self.num_envs = envs.num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space = self._space(first, "observation")
        self.single_action_space = self._space(first, "action")
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        # What each environment's roots observed last; None before its first reset.
        self._seen: list[dict[str, Any] | None] = [None] * self.num_envs
        # [n] whether the episode has ended, and the next step is a reset, or must not come.
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
            raise ValueError(f"seed: expected one for each of {self.num_envs}, got {len(seeds)}")
        self._reset_some(chosen, [seeds[i] for i in chosen], options)
        missing = [i for i, seen in enumerate(self._seen) if seen is None]
        if missing:
            raise WrongStateError(
                f"reset: environments {missing} were never reset; leave out reset_mask"
            )
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments; those that have ended are reset as `autoreset_mode` says."""
        if self._ended.any() and self.autoreset_mode is AutoresetMode.DISABLED:
            raise WrongStateError(
                f"step: environments {np.flatnonzero(self._ended).tolist()} have ended; reset them with "
                'options={"reset_mask": ...} first'
            )
        # With NEXT_STEP; in the other modes none is left at its end here.
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
        """Return the states of all environments, and what each observed last."""
        return {
            "envs": self._envs.state(),
            "seen": freeze(self._seen, "seen"),
            "ended": self._ended.copy(),
        }

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        self._envs.load_state(state["envs"])
        self._seen = thaw(state["seen"])
        self._ended = np.array(state["ended"], bool)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self._envs.close()

    def _space(self, first: KafkaMultiAgentEnv, kind: str) -> gym.Space[Any]:
        roots = first.root_agents if self._root is None else [self._root]
        spaces = {root: getattr(first.agents[root], f"{kind}_space") for root in roots}
        missing = [root for root, space in spaces.items() if space is None]
        if missing:
            raise ValueError(f"as_vector_env: roots {missing} have no {kind}_space; give them one")
        return gym.spaces.Dict(spaces) if self._root is None else spaces[self._root]

    def _reset_some(
        self, chosen: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any]
    ) -> None:
        if not chosen:
            return
        observations = self._envs.reset(chosen, seed=seeds, options=options)
        for i, of_one in zip(chosen, observations, strict=True):
            self._seen[i] = of_one
        self._ended[chosen] = False

    def _actions(self, actions: Any, due: Sequence[int]) -> list[dict[str, Any] | None]:
        """Return what the roots of each environment are to do, None for those that are reset instead."""
        # A copy, as agents may keep their actions, and the caller may use its arrays again.
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

    def _reward(self, result: StepResult) -> float:
        return sum(result.rewards.values()) if self._root is None else result.rewards[self._root]

    def _info(self, result: StepResult) -> dict[str, Any]:
        if self._root is None:
            return {root: _rest(info) for root, info in result.infos.items()}
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
        raise ValueError(f"options['reset_mask']: expected [{n}] bool with one True, got {mask!r}")
    return mask


def _rest(info: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name not in ("observation", "reward")}


def concatenate_copy(actions: Any) -> Any:
    """Return a copy of batched actions."""
    import copy

    return copy.deepcopy(actions)
