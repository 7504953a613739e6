"""Labels of a batch with an expert's actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.paths import dotted, field_at, leaf_paths, part_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map, named_map
from parllel.policies.policy import Policy, check_policy
from parllel.policies.space_trees import as_in_space
from parllel.transforms.transform import BatchTransform, body_of, optional_body_of
from parllel.types import Tree


class LabelActions(BatchTransform):
    """Write an expert's actions for the observations of a batch, for DAgger (Ross et al. 2011).

    The expert is called once per batch, which is a single request if it acts on a server.
    `BehaviorCloning` learns from the field. Invalid steps are not labelled: their cells become 0.

    Args:
        expert: a policy, see `policy_of`. It is not closed here, and sees the environments' observations.
        source: path of its observations, [T, B, ...].
        target: path of the field to write, a tree like `agent.action`, [T, B, ...].

    Raises:
        TypeError: if `expert` is not a policy.
        ValueError: if it is recurrent, because the rows of a batch are not episodes.
    """

    def __init__(
        self,
        expert: Policy,
        source: str = "env.observation",
        target: str = "agent.expert_action",
    ) -> None:
        check_policy(expert, "LabelActions: expert")
        if expert.recurrent:
            raise ValueError(
                "LabelActions: expert: expected a policy without recurrent state, got a recurrent one. "
                "The steps of a batch are labelled all at once"
            )
        self.expert = expert
        self._source, self._target = source, target
        self.reads = (source,)

    def fields(self, samples: Samples) -> Mapping[str, Tree]:
        """Declare the target, with the shapes and dtypes of `agent.action`."""
        like = samples.agent.action
        return {
            self._target: named_map(lambda leaf: Field(np.zeros(leaf.shape[2:], leaf.dtype)), like)
        }

    def transform_batch(self, samples: Samples) -> None:
        """Label all valid steps.

        Raises:
            ValueError: if parts or shapes of the expert's actions differ from the agent's.
            Exception: raised by the expert.
        """
        valid = optional_body_of(samples, "env.valid")
        shape = body_of(samples, "env.reward").shape
        steps = np.flatnonzero(np.ones(shape, bool) if valid is None else valid)
        target = field_at(samples, self._target)
        for _, leaf in leaf_paths(target):
            np.asarray(leaf)[...] = 0
        if not len(steps):
            return
        rows, columns = np.unravel_index(steps, shape)
        seen = buffer_map(
            lambda leaf: np.asarray(leaf)[rows, columns], field_at(samples, self._source)
        )
        seen = as_in_space(seen, self.expert.observation_space)
        # Each step gets a separate environment number, so the expert's episodes cannot mix.
        action = self.expert.act(seen, np.arange(len(steps)))
        for path, leaf in leaf_paths(target):
            np.asarray(leaf)[rows, columns] = self._part(
                action, path, (len(steps), *leaf.shape[2:])
            )

    def _part(self, action: Tree, path: tuple[str, ...], shape: tuple[int, ...]) -> NDArray[Any]:
        """Return a leaf of the expert's actions after checking its shape."""
        try:
            part = np.asarray(part_at(action, path))
        except KeyError as error:
            raise ValueError(f"LabelActions: the expert's actions: {error.args[0]}") from None
        # Checked before the write, which would broadcast.
        if part.shape != shape:
            raise ValueError(
                f"LabelActions: {dotted(path, 'the expert action')}: expected shape {list(shape)}, "
                f"the shape of the agent's actions, got {list(part.shape)}"
            )
        return part
