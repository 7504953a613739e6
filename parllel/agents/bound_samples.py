"""Views of the fields that a handler reads and writes, for the current batch.

They are bound to the memory once and then switched by batch number. Views of rows are created on first use
and cached, unless those of all batches together would be too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from parllel.agents.row_views import MAX_VIEWS, Convert, RowViews
from parllel.agents.row_writer import ColumnWriter, RowWriter, Write
from parllel.arrays.batch_views import BatchViews
from parllel.buffers.batches import PerBatch, batch_number, count_batches, max_kept
from parllel.buffers.paths import Path, field_at, leaf_paths
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_map
from parllel.types import Tree

Fields: TypeAlias = list[tuple[Path, NDArray[Any]]]


@dataclass
class StepViews:
    """Views and writers used to step some columns.

    Attributes:
        observation: one view per row.
        action, info: writers of the agent's outputs.
    """

    observation: list[Tree]
    action: ColumnWriter
    info: ColumnWriter


class BoundSamples:
    """Views of the rows of one batch at a time.

    Args:
        samples: the buffer.
        convert, write: the handler's methods of these names.

    Attributes:
        T, B: size of a batch.
        has_value: whether there is a value field.
        prepared: StepViews, keyed by start and stop of the columns.
        final_values, final_observations, initial_states, noise: fields of the current batch, keyed
            by path; empty if there are no such fields.
    """

    def __init__(self, samples: Samples, convert: Convert, write: Write) -> None:
        agent = samples.agent
        self.samples = samples
        self._convert, self._write = convert, write
        self.T, self.B = next(leaf for _, leaf in leaf_paths(agent.action)).shape[:2]
        info = getattr(agent, "agent_info", None)
        value = getattr(info, "value", None)
        self.has_value = value is not None
        self._action = self._writer("agent.action", agent.action)
        self._info = self._writer("agent.agent_info", info)
        self._value = self._writer("agent.agent_info.value", value)
        self._views: dict[str, RowViews] = {}
        self._final_values, self._final_observations, self._initial_states, self._noise = (
            [(path, BatchViews(leaf)) for path, leaf in leaf_paths(getattr(agent, name, None))]
            for name in ("final_value", "final_observation", "initial_rnn_state", "noise")
        )
        # The handler reads this dict directly: a method call would cost as much as the lookup.
        self.prepared: dict[tuple[Any, Any], StepViews] = {}
        arrays = buffer_arrays(samples)
        most = max_kept(MAX_VIEWS, self.T, count_batches(arrays))
        self._by_batch: PerBatch[dict[tuple[Any, Any], StepViews]] = PerBatch(lambda _: {}, most)
        self.use_batch(batch_number(arrays))

    def use_batch(self, number: int) -> None:
        """Switch to a batch."""
        self._number = number
        self.prepared = self._by_batch.at(number)
        self.final_values = [(path, views.rows(number)) for path, views in self._final_values]
        self.final_observations = [
            (path, views.rows(number)) for path, views in self._final_observations
        ]
        self.initial_states = [
            (path, views.rows(number)[0]) for path, views in self._initial_states
        ]
        self.noise = [(path, views.rows(number)) for path, views in self._noise]

    def prepare(self, columns: slice) -> StepViews:
        """Create and cache the views for stepping some columns."""
        self._action.use_batch(self._number)
        self._info.use_batch(self._number)
        prepared = StepViews(
            self.rows_of("agent.observation", columns),
            self._action.within(columns),
            self._info.within(columns),
        )
        self.prepared[columns.start, columns.stop] = prepared
        return prepared

    def rows_of(self, path: str, columns: slice) -> list[Tree]:
        """Return views of the rows of a field."""
        # Switched to the current batch only when used; steps use `prepared`.
        views = self._views.get(path)
        if views is None:
            views = RowViews(field_at(self.samples, path), self._convert)
            self._views[path] = views
        views.use_batch(self._number)
        return views.rows(columns)

    def write_value(self, t: int, columns: slice, value: Tree) -> None:
        """Write values [N] into row `t`."""
        self._value.use_batch(self._number)
        self._value.write(t, columns, value)

    def rows_of_noise(self, noise: Tree, columns: slice) -> Sequence[Tree]:
        """Split the noise of a batch, [T, B, ...], into rows of some columns."""
        if hasattr(noise, "shape"):
            # One call splits an array into its rows, cheaper than indexing T times.
            return list(noise[:, columns])
        return [buffer_map(lambda leaf, t=t: leaf[t, columns], noise) for t in range(self.T)]

    def _writer(self, name: str, field: Tree) -> RowWriter:
        return RowWriter(name, field, self._convert, self._write)
