"""The steps of a batch one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parllel.buffers.samples import Samples
from parllel.buffers.tree import named_map
from parllel.distributed.rollouts.fragments.batch_rows import BatchRows
from parllel.distributed.rollouts.step_record import StepRecord
from parllel.types import Tree


def steps_of(samples: Samples, version: int, *, recurrent: bool) -> Iterator[StepRecord]:
    """Yield the steps of a batch by row, then by column, as views of its memory.

    The recurrent state is known before row 0 alone.

    version: of the weights that the batch was sampled with.
    """
    batch = BatchRows(samples, recurrent=recurrent)
    fields, n_rows = batch.fields, batch.n_rows
    # Once for each field: most of a record's cost is the walk through its trees.
    for t in range(batch.T):
        for column in np.flatnonzero(t < n_rows).tolist():
            truncated = bool(batch.truncated[t, column])
            # A copy of a row that is not reset over, where the columns end with their episodes.
            final = None
            if truncated and not recurrent:
                final = batch.final_observation(t, column)
            yield StepRecord(
                column,
                _cell(fields["env.observation"], t, column),
                _cell(fields["agent.action"], t, column),
                _cell(fields["agent.agent_info"], t, column),
                _cell(fields["env.reward"], t, column),
                _cell(fields["env.terminated"], t, column),
                _cell(fields["env.truncated"], t, column),
                _cell(fields["env.observation"], t + 1, column),
                version,
                final_observation=final,
                env_info=_cell(fields["env.env_info"], t, column),
                agent_observation=_cell(fields["agent.observation"], t, column),
                rnn_state=_cell(batch.initial_rnn_state, 0, column) if t == 0 else None,
            )


def _cell(tree: Tree, t: int, column: int) -> Tree:
    return named_map(lambda leaf: leaf[t, column], tree)
