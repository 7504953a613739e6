"""A policy in the place of an agent, so that samplers collect what it does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.buffers.tree import buffer_leaves, named_map
from parllel.policies.policy import Policy, check_policy
from parllel.policies.space_trees import as_in_space
from parllel.seeding import Seeds
from parllel.types import State, Tree


class PolicyAgent(Agent):
    """Let a policy act in samplers; hand it to them in a `NumpyHandler`.

    It gives actions alone: no agent info, no values, nothing to train. Column b of a sampler is environment
    2 b of the policy, and 2 b + 1 in eval mode: so evaluations leave alone what it remembers, and draws, in
    sampling. What it draws depends on the column and its steps, however a sampler groups them.

    Samplers that reset environments within a batch do not say where episodes end. A policy that is
    `recurrent` needs one that does: RecurrentSampler or FullEpisodeSampler.

    Args:
        policy: closed with the agent.
        seed: of what the policy draws, in all columns; None leaves that to the policy. Episodes after the
            first go on drawing.

    Raises:
        TypeError: if `policy` is none; `policy_of` makes one of a specification.
    """

    def __init__(self, policy: Policy, seed: int | None = None) -> None:
        check_policy(policy, "PolicyAgent: policy")
        self.policy = policy
        self.recurrent = policy.recurrent
        self.action_space = policy.action_space
        self._seed = seed
        self._evaluating = False
        # Numbers of environments that have acted: only these have anything to forget.
        self._begun: set[int] = set()

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, None]:
        """Return `(action, None)`; the action has the names of the buffer, [N, ...]."""
        seen = as_in_space(observation, self.policy.observation_space)
        _, first = next(buffer_leaves(seen))
        numbers = self._numbers(env_indices, len(first))
        self._begin(numbers.tolist())
        return named_map(np.asarray, self.policy.act(seen, numbers)), None

    def _numbers(self, env_indices: EnvIndices, N: int) -> NDArray[np.intp]:
        """Return the policy's numbers of N columns in the present mode."""
        if isinstance(env_indices, slice):
            columns = np.arange(N) + (env_indices.start or 0)
        else:
            columns = np.asarray(env_indices)
        numbers: NDArray[np.intp] = 2 * columns + self._evaluating
        return numbers

    def _begin(self, numbers: list[int]) -> None:
        """Seed those that act for the first time."""
        fresh = [number for number in numbers if number not in self._begun]
        if not fresh:
            return
        self._begun.update(fresh)
        if self._seed is not None:
            # By name and number: it makes no difference in which order, or with which others, they begin.
            self.policy.reset(fresh, [_seed_of(self._seed, number) for number in fresh])

    def reset(self) -> None:
        """Begin new episodes in all columns, of the present mode."""
        self._reset(sorted(n for n in self._begun if n % 2 == self._evaluating))

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Begin new episodes in some columns, of the present mode."""
        if isinstance(env_indices, slice):
            # Columns that have not acted yet need none, and the slice may have no end.
            chosen = range(*env_indices.indices(max(self._begun, default=-1) // 2 + 1))
            env_indices = np.array(chosen, np.intp)
        numbers = self._numbers(env_indices, len(env_indices)).tolist()
        self._reset([number for number in numbers if number in self._begun])

    def _reset(self, numbers: list[int]) -> None:
        # None would mean all environments to the policy, an empty list is a call for nothing.
        if numbers:
            self.policy.reset(numbers)

    def sample_mode(self) -> None:
        """Act in the environments of the samples."""
        self._evaluating = False

    def train_mode(self) -> None:
        """Act in the environments of the samples, as there is nothing to train."""
        self._evaluating = False

    def eval_mode(self) -> None:
        """Act in the environments of evaluations."""
        self._evaluating = True

    def models(self) -> dict[str, Any]:
        """Return {}: it learns nothing."""
        return {}

    def state(self) -> State:
        """Return the state of the policy, and the numbers of the environments that have acted."""
        # Those that have acted too: seeded again after a resume, they would repeat their first episodes.
        return {"policy": self.policy.state(), "begun": sorted(self._begun)}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        self.policy.load_state(state["policy"])
        self._begun = set(state["begun"])

    def close(self) -> None:
        """Close the policy."""
        self.policy.close()


def _seed_of(seed: int, number: int) -> int:
    mode = ("sampling", "evaluation")[number % 2]
    return Seeds(seed).integer(f"{mode} {number // 2}")
