"""Evaluation of off-policy batches with the learner's current weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.algos.ppo_inputs import action_tensors, flat_tensors, tensors
from parllel.transforms.transform import BatchTransform, body_of, row_after
from parllel.types import Tree, class_path

LOG_PROB, VALUE = "agent.learner_log_prob", "agent.learner_value"
FINAL_VALUE = "agent.learner_final_value"

Places: TypeAlias = tuple[NDArray[np.intp], ...]  # rows and columns
Results: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class EvaluatePolicy(BatchTransform):
    """Evaluates a batch that was sampled with older weights, using the agent's current weights.

    Writes three fields [T, B] float32: `agent.learner_log_prob`, the log probabilities of the
    actions taken; `agent.learner_value`, whose padding row T holds the values after the batch; and
    `agent.learner_final_value`, the values of the final observations of truncated episodes.
    `EstimateVtrace` and `ImportanceWeights` read them. Modules such as dropout are off.

    Use it on the learner's side, in a `TransformingAlgorithm`. Reads `agent.observation`, `agent.action`,
    `agent.final_observation` (the sampler needs `FinalObservations`), and for recurrent agents the fields
    that RecurrentPPO reads: states are recomputed from `agent.initial_rnn_state`.

    Args:
        agent: the trained agent.

    Raises:
        TypeError: for several agents combined in one, or an agent without `evaluate`.
    """

    def __init__(self, agent: PgAgent) -> None:
        if not isinstance(agent, PgAgent) or hasattr(agent, "learning_groups"):
            raise TypeError(
                f"EvaluatePolicy: agent: expected one PgAgent of parllel.torch, got a "
                f"{class_path(agent)}. Several agents learn from older batches uncorrected: limit "
                "their age by ReplayBuffer(max_staleness=...)"
            )
        self.agent = agent
        recurrent = ["agent.initial_rnn_state"] if agent.recurrent else []
        if getattr(agent, "uses_prev_action", False):
            recurrent.append("agent.agent_info.prev_action")
        self.reads = ("agent.observation", "agent.final_observation", "agent.action", *recurrent)

    @property
    def learner(self) -> PgAgent:
        """The argument `agent`. TransformingAlgorithm compares it with the trained agent."""
        return self.agent

    def agent_inputs(
        self, observation: Tree, rows: NDArray[np.intp], columns: NDArray[np.intp]
    ) -> dict[str, Tree]:
        """Return the keyword arguments of the agent besides the action, as `Handler.agent_inputs` does.

        Override to pass further inputs, for example `{..., "agent_id": self.ids[columns]}`.

        Args:
            observation: leaves [N, ...]; for recurrent agents [T + 1, B, ...].
            rows, columns: row and column of each observation, [N] or [T + 1, B]. A final
                observation has the row of the last step or, for recurrent agents, the row after it.
        """
        return {"observation": observation}

    def fields(self, samples: Samples) -> Mapping[str, Field]:
        """Declare log probability and values."""
        value = np.float32(0.0)
        return {LOG_PROB: Field(value), VALUE: Field(value, padding=1), FINAL_VALUE: Field(value)}

    def transform_batch(self, samples: Samples) -> None:
        """Evaluate the batch, the observations after it, and the final observations of truncated episodes."""
        T, B = samples.env.done.shape[:2]
        cut = np.nonzero(body_of(samples, "env.truncated"))
        evaluate = self._evaluate_sequences if self.agent.recurrent else self._evaluate_steps
        with torch.inference_mode():
            log_prob, value, final_value = (
                leaf.float().cpu().numpy() for leaf in evaluate(samples, T, B, cut)
            )
        body_of(samples, LOG_PROB)[...] = log_prob
        body_of(samples, VALUE)[...] = value[:T]
        row_after(samples, VALUE)[...] = value[T]
        body_of(samples, FINAL_VALUE)[...] = 0.0
        body_of(samples, FINAL_VALUE)[cut] = final_value

    def _evaluate_steps(self, samples: Samples, T: int, B: int, cut: Places) -> Results:
        """Return log probabilities [T, B], values [T + 1, B], and values at the N truncations."""
        agent, device = self.agent, self.agent.device
        rows, columns = (leaf.ravel() for leaf in np.indices((T, B)))
        observation = flat_tensors(samples, "agent.observation", device)
        log_prob, _, value = agent.evaluate(
            action=buffer_map(lambda leaf: leaf.flatten(0, 1), action_tensors(samples, device)),
            **self.agent_inputs(observation, rows, columns),
        )
        after = buffer_map(lambda leaf: leaf[T], self._rows(samples))
        following = agent.value(**self.agent_inputs(after, np.full(B, T), np.arange(B)))
        finals = self._final_observations(samples, cut)
        final_value = agent.value(**self.agent_inputs(finals, *cut)) if len(cut[0]) else value[:0]
        values = torch.cat((value, following)).reshape(T + 1, B)
        return log_prob.reshape(T, B), values, final_value

    def _evaluate_sequences(self, samples: Samples, T: int, B: int, cut: Places) -> Results:
        """As `_evaluate_steps` for a recurrent agent, from the initial state through all rows."""
        rows, columns = cut
        # An environment waits after its episode, so the row after its last step can hold the final
        # observation.
        after_cut = (torch.from_numpy(rows + 1), torch.from_numpy(columns))
        observation = buffer_map(
            lambda leaf, final: leaf.index_put(after_cut, final.to(leaf.dtype)),
            self._rows(samples),
            self._final_observations(samples, cut),
        )
        inputs = self.agent_inputs(observation, *np.indices((T + 1, B)))
        state = tensors(samples, "agent.initial_rnn_state", self.agent.device)
        inputs["initial_rnn_state"] = buffer_map(lambda leaf: leaf[0], state)
        action = action_tensors(samples, self.agent.device)
        if getattr(self.agent, "uses_prev_action", False):
            # Recomputed, because it is not stored for the row after a last step. A column is part of one
            # episode.
            before = tensors(samples, "agent.agent_info.prev_action", self.agent.device)[:1]
            inputs["prev_action"] = torch.cat((before, action.to(before.dtype)))
        # Row T has no action. Any will do, because only the value is used there.
        log_prob, _, value = self.agent.evaluate(action=torch.cat((action, action[-1:])), **inputs)
        return log_prob[:T], value, value[after_cut]

    def _rows(self, samples: Samples) -> Tree:
        """Return observations [T + 1, B, ...], views of the samples on the CPU."""
        return buffer_map(
            lambda leaf: torch.from_numpy(np.asarray(leaf[: len(leaf) + 1])).to(self.agent.device),
            samples.agent.observation,
        )

    def _final_observations(self, samples: Samples, cut: Places) -> Tree:
        return buffer_map(
            lambda leaf: torch.from_numpy(np.asarray(leaf)[cut]).to(self.agent.device),
            samples.agent.final_observation,
        )
