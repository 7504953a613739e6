"""Policy-gradient agent with recurrent state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from parllel.agents.agent import ALL_ENVS, EnvIndices
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_map
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.agents.recurrent_agent import RecurrentAgent
from parllel.torch.agents.recurrent_memory import (
    RecurrentMemory,
    check_prev_action,
    no_action,
)
from parllel.torch.distributions.distribution import Distribution
from parllel.types import Tree


class RecurrentPgAgent(RecurrentAgent, PgAgent):
    """Policy-gradient agent whose model has recurrent state.

    For each environment the agent remembers the state of the model and the previous action. Both start at
    zero, and sampling and eval mode have separate memories. The agent info is `value` [N] and `log_prob` [N]
    of the action, plus the fields enabled by `prev_action` and `store_rnn_state`.

    Args:
        model: module that takes `(observation, rnn_state)`, and `prev_action` if it is enabled, for
            T rows, and returns `(PgOutput, rnn_state)`. Its method `initial_state(N)` returns the
            state at the start of an episode. See `RecurrentPgModel`.
        distribution: the action distribution, which takes the model's `params`.
        prev_action: an example of one action. If given, the previous action is passed to the model
            and stored in `agent_info.prev_action` for the algorithm. The first step raises
            ValueError if the example has the wrong shape, or is integer where actions are not.
        store_rnn_state: whether to also store the state before each step, as
            `agent_info.rnn_state`. Algorithms do not need it, because they recompute states from
            `agent.initial_rnn_state`.
        seed, device: see `PgAgent`.
    """

    def __init__(
        self,
        model: nn.Module,
        distribution: Distribution,
        *,
        prev_action: Any = None,
        store_rnn_state: bool = False,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self._no_action = no_action(
            prev_action, distribution.action_space, getattr(distribution, "start", 0)
        )
        super().__init__(model, distribution, seed=seed, device=device)
        self.store_rnn_state = store_rnn_state
        self._memory = RecurrentMemory(self.device)
        self._checked = False

    @torch.inference_mode()
    def step(
        self,
        observation: Tree,
        *,
        env_indices: EnvIndices = ALL_ENVS,
        noise: Tensor | None = None,
        **inputs: Tree,
    ) -> tuple[Tensor, Tree]:
        """Return `(action, agent_info)`, and remember state and action."""
        memory, indices = self._remembered(env_indices, observation)
        # Copies, because a slice is a view: the writes below would change the returned previous state.
        before = buffer_map(lambda leaf: leaf[indices].clone(), memory)
        (params, value), state = self._recur(observation, before, inputs)
        if not self._evaluating:
            # The model returns rows [T, N] with T = 1, and the noise needs the same dimensions.
            noise = self._draw(1, value.shape[1]) if noise is None else noise.unsqueeze(0)
        action, log_prob = (row[0] for row in self._choose(params, value, noise))
        info: dict[str, Tree] = {"value": value[0], "log_prob": log_prob}
        if self.uses_prev_action:
            info["prev_action"] = before.prev_action
            if not self._checked:
                assert self._no_action is not None
                check_prev_action(type(self).__name__, self._no_action, action)
                self._checked = True
            # The action as drawn, even if the cage clips it: `evaluate` sees the same.
            memory.prev_action[indices] = action
        if self.store_rnn_state:
            info["rnn_state"] = before.rnn_state
        self._remember(memory, indices, state)
        return action, NamedTuple(**info)

    @torch.inference_mode()
    def value(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, **inputs: Tree
    ) -> Tensor:
        """Return the value estimate [N]. The memory is read but not updated."""
        memory, indices = self._remembered(env_indices, observation)
        before = buffer_map(lambda leaf: leaf[indices], memory)
        value: Tensor = self._recur(observation, before, inputs)[0][1][0]
        return value

    def outputs(self, observation: Tree, **inputs: Tree) -> tuple[Any, Tensor]:
        """Return the model's parameters and values of episode segments, each [T, N, ...], with gradients.

        observation: [T, N, ...].  inputs: `initial_rnn_state`, leaves [N, ...], the state before row 0;
        `prev_action` [T, N, ...] if the agent uses it; and further inputs of the model. `evaluate` takes the
        same, and actions [T, N, ...].

        Raises:
            ValueError: if the initial state is missing.
        """
        if not self._on_cpu:
            observation, inputs = buffer_map(self._to_device, (observation, inputs))
        if "initial_rnn_state" not in inputs:
            raise ValueError(
                f"{type(self).__name__}.evaluate: expected initial_rnn_state, got {sorted(inputs)}; "
                "RecurrentPPO gives it"
            )
        # Only row 0 is stored: later states are recomputed, with gradients through time.
        rnn_state = inputs.pop("initial_rnn_state")
        (params, value), _ = self.model(observation, rnn_state, **inputs)
        return params, value
