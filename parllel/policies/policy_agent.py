"""Agent whose actions come from a policy, so that samplers can collect its experience."""

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
    """Agent that acts by a policy. Pass it to samplers in a `NumpyHandler`.

    It returns only actions: no agent info, no values, nothing to train. Column b of a sampler is environment
    2 b of the policy, or 2 b + 1 in eval mode, so evaluations do not affect the memory and random numbers of
    sampling. Random numbers depend on the column and its steps, not on how a sampler groups columns.

    Samplers that reset environments within a batch do not report the ends of episodes to agents. A
    `recurrent` policy needs RecurrentSampler or FullEpisodeSampler, which do.

    Args:
        policy: the policy; closed together with the agent.
        seed: seed of the policy's random numbers in all columns; None leaves seeding to the policy.
            Episodes after the first continue the generators.

    Raises:
        TypeError: if `policy` is not a Policy; `policy_of` makes one from a specification.
    """

    def __init__(self, policy: Policy, seed: int | None = None) -> None:
        check_policy(policy, "PolicyAgent: policy")
        self.policy = policy
        self.recurrent = policy.recurrent
        self.action_space = policy.action_space
        self._seed = seed
        self._evaluating = False
        # Environments that have acted: only these have memory to clear.
        self._begun: set[int] = set()

    def step(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, noise: Tree = None
    ) -> tuple[Tree, None]:
        """Return `(action, None)`. The action [N, ...] has the field names of the buffer."""
        seen = as_in_space(observation, self.policy.observation_space)
        _, first = next(buffer_leaves(seen))
        numbers = self._numbers(env_indices, len(first))
        self._begin(numbers.tolist())
        return named_map(np.asarray, self.policy.act(seen, numbers)), None

    def _numbers(self, env_indices: EnvIndices, N: int) -> NDArray[np.intp]:
        """Return the policy's numbers of N columns in the current mode."""
        if isinstance(env_indices, slice):
            columns = np.arange(N) + (env_indices.start or 0)
        else:
            columns = np.asarray(env_indices)
        numbers: NDArray[np.intp] = 2 * columns + self._evaluating
        return numbers

    def _begin(self, numbers: list[int]) -> None:
        """Seed environments that act for the first time."""
        fresh = [number for number in numbers if number not in self._begun]
        if not fresh:
            return
        self._begun.update(fresh)
        if self._seed is not None:
            # Seeded by mode and number, so the order in which environments first appear does not matter.
            self.policy.reset(fresh, [_seed_of(self._seed, number) for number in fresh])

    def reset(self) -> None:
        """Begin new episodes in all columns of the current mode."""
        self._reset(sorted(n for n in self._begun if n % 2 == self._evaluating))

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Begin new episodes in some columns of the current mode."""
        if isinstance(env_indices, slice):
            # Columns that have not acted need no reset, and the slice may be open-ended.
            chosen = range(*env_indices.indices(max(self._begun, default=-1) // 2 + 1))
            env_indices = np.array(chosen, np.intp)
        numbers = self._numbers(env_indices, len(env_indices)).tolist()
        self._reset([number for number in numbers if number in self._begun])

    def _reset(self, numbers: list[int]) -> None:
        # Skipped for an empty list, which would be a call for nothing.
        if numbers:
            self.policy.reset(numbers)

    def sample_mode(self) -> None:
        """Act in the sampling environments."""
        self._evaluating = False

    def train_mode(self) -> None:
        """Act in the sampling environments. There is nothing to train."""
        self._evaluating = False

    def eval_mode(self) -> None:
        """Act in the evaluation environments."""
        self._evaluating = True

    def models(self) -> dict[str, Any]:
        """Return {}: there is nothing to train."""
        return {}

    def state(self) -> State:
        """Return the state of the policy, and the numbers of the environments that have acted."""
        # Includes `begun`: environments seeded again after a resume would repeat their first episodes.
        return {"policy": self.policy.state(), "begun": sorted(self._begun)}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self.policy.load_state(state["policy"])
        self._begun = set(state["begun"])

    def close(self) -> None:
        """Close the policy."""
        self.policy.close()


def _seed_of(seed: int, number: int) -> int:
    mode = ("sampling", "evaluation")[number % 2]
    return Seeds(seed).integer(f"{mode} {number // 2}")
