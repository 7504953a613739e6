"""Estimate the advantages of several agents (GAE), and normalise them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.transforms.advantage import estimate_advantage
from parllel.transforms.arguments import check_finite_positive, check_fraction
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.transform import BatchTransform, body_of, optional_body_of, row_after
from parllel.types import Tree

VALUE = "agent.agent_info.value"
INFO = "env.env_info"
ENDS = ("alive", "terminated", "truncated")


class EstimateMultiAgentAdvantage(BatchTransform):
    """Writes the advantages and returns of each agent, as `EstimateAdvantage` does for a single agent.

    Reads `env.terminated`, `env.truncated`, and for each agent its reward and its value in
    `agent.agent_info.value.<agent>`, whose padding row T holds the values after the batch. Writes
    `agent.advantage.<agent>` and `agent.return_.<agent>`, [T, B] float32, and declares
    `agent.final_value.<agent>`, which the handler fills.

    Agents may leave before the episode ends if `env.env_info` holds `alive`, `terminated` and
    `truncated` flags for each agent (see `parllel.envs.multi_agent_info`). The value after an
    agent's last step is 0 if the agent was terminated. If it was truncated, it is the agent's value
    in the next row, which holds the agent's final observation. Where an agent took no part, its
    advantage and return are 0.

    Args:
        discount: gamma, in [0, 1].
        gae_lambda: lambda, in [0, 1].
        reward: path of a tree of fields [T, B] keyed by agent, or of a single field [T, B] that is
            the reward of every agent.

    Raises:
        ValueError: if an argument is outside [0, 1]. `bind` raises it if an agent has a value but
            no reward, or if `env.env_info` holds only some of the three flags.
    """

    def __init__(
        self, discount: float, gae_lambda: float, reward: str = "env.env_info.reward"
    ) -> None:
        name = type(self).__name__
        self.discount = check_fraction(name, "discount", discount)
        self._gae_lambda = check_fraction(name, "gae_lambda", gae_lambda)
        self._reward = reward
        self.reads = (reward, "env.terminated", "env.truncated", VALUE)
        self._views = BatchMemo(self._views_of)

    def fields(self, samples: Samples) -> Mapping[str, Tree]:
        """Declare advantage, return and final value of each agent."""
        zeros = {agent: Field(np.float32(0.0)) for agent in agents_of(samples)}
        return {f"agent.{name}": zeros for name in ("advantage", "return_", "final_value")}

    def _views_of(
        self, samples: Samples
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], list[_AgentViews]]:
        agents = [self._views_of_agent(samples, agent) for agent in agents_of(samples)]
        return body_of(samples, "env.terminated"), body_of(samples, "env.truncated"), agents

    def transform_batch(self, samples: Samples) -> None:
        """Write advantages and returns of the whole batch."""
        all_terminated, all_truncated, agents = self._views.of(samples)
        for own in agents:
            terminated, truncated, final_value = all_terminated, all_truncated, own.final_value
            if own.ends is not None:
                alive, own_terminated, own_truncated = own.ends
                # New arrays: the flags of the environment itself are data, which no transform may change.
                terminated = terminated | own_terminated
                truncated = truncated | own_truncated
                # Where the episode goes on without this agent, its last observation is in the next row.
                # Where the episode itself ends, a reset has replaced that row.
                next_value = np.concatenate([own.value[1:], own.bootstrap_value[np.newaxis]])
                final_value = np.where(all_truncated, final_value, next_value)
            estimate_advantage(
                own.reward,
                own.value,
                terminated,
                truncated,
                final_value,
                own.bootstrap_value,
                self.discount,
                self._gae_lambda,
                own.advantage,
            )
            np.add(own.advantage, own.value, out=own.return_, casting="same_kind")
            if own.ends is not None:  # the value of a row without the agent means nothing
                # Rows after an agent's last step did not reach that step, as sums end there.
                own.advantage[~alive] = 0.0
                own.return_[~alive] = 0.0

    def _views_of_agent(self, samples: Samples, agent: str) -> _AgentViews:
        reward = self._reward
        if getattr(field_at(samples, reward), "_fields", None) is not None:
            reward = f"{reward}.{agent}"
        return _AgentViews(
            reward=body_of(samples, reward),
            value=body_of(samples, f"{VALUE}.{agent}"),
            bootstrap_value=row_after(samples, f"{VALUE}.{agent}"),
            final_value=body_of(samples, f"agent.final_value.{agent}"),
            ends=_ends_of(samples, agent),
            advantage=body_of(samples, f"agent.advantage.{agent}"),
            return_=body_of(samples, f"agent.return_.{agent}"),
        )


@dataclass
class _AgentViews:
    """Views [T, B] of one agent's fields; `ends` are alive, terminated and truncated, if they are stored."""

    reward: NDArray[Any]
    value: NDArray[Any]
    bootstrap_value: NDArray[Any]
    final_value: NDArray[Any]
    ends: list[NDArray[np.bool_]] | None
    advantage: NDArray[np.float32]
    return_: NDArray[np.float32]


def agents_of(samples: Samples) -> tuple[str, ...]:
    """Return the names of the agents, which are the names of the fields of values.

    Raises:
        ValueError: if there is a single value field instead of a tree.
    """
    names = getattr(field_at(samples, VALUE), "_fields", None)
    if names is None:
        raise ValueError(f"{VALUE}: expected a field for each agent, got a single one")
    return tuple(names)


def alive_of(samples: Samples, agent: str) -> NDArray[np.bool_] | None:
    """Return a bool view [T, B], true where an agent took part, or None if this is not stored."""
    info = field_at(samples, INFO)
    if getattr(info, "alive", None) is None:
        return None
    return body_of(samples, f"{INFO}.alive.{agent}")


def _ends_of(samples: Samples, agent: str) -> list[NDArray[np.bool_]] | None:
    info = field_at(samples, INFO)
    there = [name for name in ENDS if getattr(info, name, None) is not None]
    if not there:
        return None
    if len(there) < len(ENDS):
        raise ValueError(f"{INFO}: expected all of {list(ENDS)} or none, got {there} only")
    return [body_of(samples, f"{INFO}.{name}.{agent}") for name in ENDS]


class NormalizeMultiAgentAdvantage(BatchTransform):
    """Normalises `agent.advantage.<agent>` over the batch, in place, for each agent separately.

    Agents are normalised separately because their rewards may have different scales. If there are
    fields `env.valid` or `env.env_info.alive.<agent>`, the mean and standard deviation are computed
    from the entries where both are true, and all other entries become 0.

    Args:
        epsilon: added to the standard deviation.

    Raises:
        ValueError: if epsilon is not above zero.
    """

    reads = ("agent.advantage",)

    def __init__(self, epsilon: float = 1e-8) -> None:
        self._epsilon = check_finite_positive(type(self).__name__, "epsilon", epsilon)
        self._views = BatchMemo(self._views_of)

    def _views_of(
        self, samples: Samples
    ) -> list[tuple[NDArray[np.float32], list[NDArray[np.bool_]]]]:
        valid = optional_body_of(samples, "env.valid")
        agents = []
        for agent in agents_of(samples):
            masks = [mask for mask in (valid, alive_of(samples, agent)) if mask is not None]
            agents.append((body_of(samples, f"agent.advantage.{agent}"), masks))
        return agents

    def transform_batch(self, samples: Samples) -> None:
        """Normalise the whole batch. If an agent has no valid entries, all of its entries become 0."""
        for advantage, masks in self._views.of(samples):
            counts = np.logical_and.reduce(masks) if masks else np.ones(advantage.shape, bool)
            # In float64: a large mean rounded to float32 would leave an offset.
            chosen = advantage[counts].astype(np.float64)
            advantage[~counts] = 0.0
            if chosen.size:
                advantage[counts] = (chosen - chosen.mean()) / (chosen.std() + self._epsilon)
