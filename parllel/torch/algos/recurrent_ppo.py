"""Proximal policy optimisation of recurrent agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from parllel.algos.ppo_fields import paths_of_steps
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map
from parllel.torch.algos.ppo import PPO
from parllel.torch.algos.ppo_inputs import PpoInputs, action_tensors, tensors
from parllel.types import BatchSpec, Tree

INITIAL = "initial_rnn_state"


class SequenceInputs(PpoInputs):
    """A batch or a minibatch of N columns with T rows each: fields are [T, N, ...].

    `agent["initial_rnn_state"]`, with leaves [N, ...], is the state before row 0.
    """

    def select(self, indices: Tensor) -> PpoInputs:
        """Return copies of the columns at `indices`, int64."""
        # Columns are dimension 1 of fields with rows, but dimension 0 of a state.
        chosen = self.over_rows(lambda leaf: leaf.index_select(1, indices))
        chosen.agent[INITIAL] = buffer_map(
            lambda leaf: leaf.index_select(0, indices), self.agent[INITIAL]
        )
        return chosen

    def over_rows(self, function: Callable[[Tensor], Tensor]) -> SequenceInputs:
        """Apply a function to every tensor with rows, that is, to all but the initial state."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        agent = {
            name: buffer_map(function, value)
            for name, value in values.pop("agent").items()
            if name != INITIAL
        }
        agent[INITIAL] = self.agent[INITIAL]
        return SequenceInputs(
            agent=agent, **{name: buffer_map(function, value) for name, value in values.items()}
        )


class RecurrentPPO(PPO):
    """PPO for recurrent agents: the columns of a batch are sequences.

    A minibatch consists of whole columns. Their states are recomputed from `agent.initial_rnn_state`, and
    only steps with `env.valid` count. Reads the fields that PPO reads, and
    `agent.agent_info.prev_action` if the agent uses it. Batches come from a RecurrentSampler.

    Args: as for PPO; `agent` is a RecurrentPgAgent, and B must be at least `minibatches`.

    Raises:
        ValueError: if an argument is out of range.
    """

    def _check_kind(self, agent: Any) -> None:
        """Raise TypeError for an agent without recurrent state."""
        if not agent.recurrent:
            raise TypeError(
                f"{type(self).__name__}: agent: expected a recurrent agent, such as RecurrentPgAgent, got "
                f"{type(agent).__name__}. Use PPO"
            )

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the fields that are read of a batch."""
        paths = {"agent.observation": None, f"agent.{INITIAL}": None, "env.valid": None}
        if getattr(self.agent, "uses_prev_action", False):
            paths["agent.agent_info.prev_action"] = None
        return list(paths | dict.fromkeys(paths_of_steps(samples).values()))

    def check_batch_spec(self, batch_spec: BatchSpec) -> None:
        """Raise ValueError if there are fewer columns than minibatches."""
        if self.n_minibatches > batch_spec.B:
            raise ValueError(
                f"RecurrentPPO: minibatches: expected at most {batch_spec.B}, the columns of a batch, "
                f"got {self.n_minibatches}"
            )

    def construct_agent_inputs(self, samples: Samples) -> PpoInputs:
        """Return the batch as tensors [T, B, ...]."""

        def rows(path: str) -> Any:
            return tensors(samples, path, self.agent.device, type(self).__name__)

        agent: dict[str, Tree] = {
            "observation": rows("agent.observation"),
            # The field is [1, B, ...], as all fields of a buffer have a row dimension.
            INITIAL: buffer_map(lambda leaf: leaf[0], rows(f"agent.{INITIAL}")),
        }
        if getattr(self.agent, "uses_prev_action", False):
            agent["prev_action"] = rows("agent.agent_info.prev_action")
        # Not optional here: RecurrentSampler requires it.
        paths = {**paths_of_steps(samples), "valid": "env.valid"}
        steps = {name: rows(path) for name, path in paths.items()}
        steps["action"] = action_tensors(samples, self.agent.device)
        return SequenceInputs(agent=agent, **steps)

    def minibatches(self, inputs: PpoInputs) -> Iterator[PpoInputs]:
        """Yield the minibatches of one epoch; every column is in exactly one of them."""
        B = inputs.return_.shape[1]
        if self.n_minibatches > B:
            raise ValueError(
                f"RecurrentPPO: expected at least one column for each of {self.n_minibatches} "
                f"minibatches, got B={B}"
            )
        # Only columns are shuffled: within a column, states follow from earlier rows.
        shuffled = torch.from_numpy(self._generator.permutation(np.arange(B)))
        for indices in shuffled.to(self.agent.device).tensor_split(self.n_minibatches):
            minibatch = cast(SequenceInputs, inputs.select(indices))
            assert minibatch.valid is not None
            # Without any step, if all its environments crashed in row 0; Adam would still move.
            if minibatch.valid.any():
                yield _without_empty_rows(minibatch)


def _without_empty_rows(inputs: SequenceInputs) -> PpoInputs:
    """Drop the rows after the last valid one, to save their computation."""
    assert inputs.valid is not None
    # Columns are valid from row 0 on, so the number of rows with a valid step is the longest column's length.
    T = int(inputs.valid.any(dim=1).sum())
    return inputs if len(inputs.valid) == T else inputs.over_rows(lambda leaf: leaf[:T])
