"""The handler stands between a sampler, which knows rows and columns, and an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.agents.agent import Agent, EnvIndices
from parllel.agents.row_views import RowViews
from parllel.agents.row_writer import ColumnWriter, RowWriter
from parllel.buffers import (
    Field,
    NamedTuple,
    Path,
    Samples,
    buffer_leaves,
    buffer_map,
    dotted,
    field_at,
    leaf_paths,
    named_map,
    part_at,
)
from parllel.errors import WrongStateError, add_note
from parllel.types import State, Tree

# Fields of agent_info that follow the batch: row T is needed as well, to bootstrap from.
PADDED_INFO = ("value",)


@dataclass
class Prepared:
    """What a step in some columns needs, looked up once.

    Attributes:
        observation: the view of each row.
        action, info: write what the agent returned.
        noise: of the present batch, for each row; None until it is asked for.
    """

    observation: list[Tree]
    action: ColumnWriter
    info: ColumnWriter
    noise: Sequence[Tree] | None = None


class Handler(ABC):
    """Let an agent read and write rows of the batch through views that are made once.

    A framework is added by three methods: `convert`, `write` and `to_numpy`. An agent that wants
    more than the observation gets it from a subclass that overrides `agent_inputs`.

    Samplers call `bind` before sampling and when buffers change, `start_batch` before each batch,
    then `step` for rows 0 to T - 1, and `bootstrap_value` for row T.
    """

    def __init__(self, agent: Agent) -> None:
        if not isinstance(agent, Agent):
            raise TypeError(
                f"{type(self).__name__}: agent: expected an Agent, got a {type(agent).__name__}"
            )
        self.agent = agent
        self._sampling = True
        self._restore_mode = agent.sample_mode
        self._samples: Samples | None = None
        self._views: dict[str, RowViews] = {}
        self._prepared: dict[tuple[Any, Any], Prepared] = {}
        self._noise: Tree = None
        self._noise_fields: list[tuple[Path, NDArray[Any]]] = []
        # Packing and unpacking the inputs costs as much as all else in a step together.
        self._only_observation = type(self).agent_inputs is Handler.agent_inputs

    # --- what a framework provides

    @abstractmethod
    def convert(self, array: NDArray[Any]) -> Any:
        """Return a view of `array` in the agent's framework; both share their memory."""

    @abstractmethod
    def write(self, view: Any, value: Any) -> None:
        """Copy `value`, one leaf from the agent, into `view`, which came from `convert`."""

    @abstractmethod
    def to_numpy(self, value: Any) -> NDArray[Any]:
        """Return one leaf from the agent as a numpy array."""

    # --- what the agent is given

    def agent_inputs(
        self, observation: Tree, rows: int | NDArray[np.intp] | None, columns: EnvIndices
    ) -> dict[str, Tree]:
        """Return the keyword arguments of `agent.step` and `agent.value`.

        Override to hand over more, for example `{..., "agent_id": self.ids[columns]}`; `row_view`
        gives views of any other field of the samples.

        observation: the agent's framework, leaves [N, ...].
        rows: a row; an array [N] for final observations; None outside of a batch.
        columns: a slice, or an array [N].
        """
        return {"observation": observation}

    def row_view(self, path: str, t: int, columns: slice) -> Tree:
        """Return a view of row `t` of the field at `path`, such as "agent.observation"."""
        return self._rows_of(path, columns)[t]

    # --- what a sampler calls

    def example(self, observation_example: Tree) -> tuple[Tree, Tree]:
        """Run the agent once, in eval mode, and return `(action_example, agent_info_fields)`.

        observation_example: numpy tree of one cell, without T and B, in the dtypes of the buffer.
        The action comes back as a numpy tree of one cell; the agent info as a tree of `Field`,
        because `value` needs padding, or None. What the agent samples with stays as it is.
        """
        column = slice(0, 1)
        observation = named_map(
            lambda leaf: self.convert(np.array(leaf)[np.newaxis]), observation_example
        )
        self.agent.eval_mode()
        try:
            inputs = self.agent_inputs(observation, None, column)
            action, agent_info = self.agent.step(**inputs, env_indices=column)
        except Exception as error:
            leaves = buffer_leaves(buffer_map(np.asarray, observation_example), "observation")
            seen = ", ".join(f"{path} {cell.dtype} {cell.shape}" for path, cell in leaves)
            add_note(error, f"in {type(self.agent).__name__}, given an example of one cell: {seen}")
            raise
        finally:
            self._restore_mode()
        return buffer_map(self._cell, action), self._info_fields(agent_info)

    def noise_example(self) -> Tree:
        """Return a tree of `Field` for the noise of one cell, or None if the agent draws none.

        The random state stays as it is, if the agent's `state` holds it.
        """
        state = self.agent.state()
        self.agent.sample_mode()
        try:
            noise = self.agent.draw_noise(1, 1)
        finally:
            self._restore_mode()
            self.agent.load_state(state)
        cells = buffer_map(lambda leaf: self.to_numpy(leaf)[0, 0], noise)
        return buffer_map(lambda cell: Field(cell, dtype=cell.dtype), cells)

    def initial_state_example(self) -> Tree:
        """Return a numpy tree of the recurrent state of one environment, or None if there is none."""
        if not self.agent.recurrent:
            return None
        return buffer_map(self._cell, self.agent.initial_rnn_state(slice(0, 1)))

    def bind(self, samples: Samples) -> None:
        """Take the buffer to read from and write to; views are made when first used."""
        self._samples = samples
        self._views.clear()
        self._prepared.clear()
        agent = samples.agent
        agent_info = getattr(agent, "agent_info", None)
        value = getattr(agent_info, "value", None)
        final_value = getattr(agent, "final_value", None)
        self._action_writer = self._writer("agent.action", agent.action)
        self._info_writer = self._writer("agent.agent_info", agent_info)
        self._value_writer = self._writer("agent.agent_info.value", value)
        self._has_value = value is not None
        self._final_values = [(path, np.asarray(leaf)) for path, leaf in leaf_paths(final_value)]
        initial = getattr(agent, "initial_rnn_state", None)
        self._initial_states = [(path, np.asarray(leaf)[0]) for path, leaf in leaf_paths(initial)]
        noise = getattr(agent, "noise", None)
        self._noise_fields = [(path, np.asarray(leaf)) for path, leaf in leaf_paths(noise)]

    @property
    def samples(self) -> Samples | None:
        """The buffer that it was bound to; None before."""
        return self._samples

    def start_batch(self) -> None:
        """Draw the noise of the batch, in sample mode, clear the final values, keep the recurrent state.

        Where the samples have a field `agent.noise` it is written there too, for policies in other processes;
        and the state that the batch starts from to `agent.initial_rnn_state` [1, B, ...].
        """
        T, B = self._batch_shape()
        for _, final_value in self._final_values:
            final_value.fill(0)
        if self._initial_states:
            state = self.agent.initial_rnn_state(slice(0, B))
            for path, field in self._initial_states:
                np.copyto(field, self.to_numpy(part_at(state, path)))
        self._noise = self.agent.draw_noise(T, B) if self._sampling else None
        for prepared in self._prepared.values():
            prepared.noise = None
        if self._noise is not None:
            for path, field in self._noise_fields:
                np.copyto(field, self.to_numpy(part_at(self._noise, path)))

    def step(self, t: int, columns: slice) -> None:
        """Read `agent.observation[t, columns]`; write the action and agent info of that row."""
        prepared = self._prepared.get((columns.start, columns.stop))
        if prepared is None:
            prepared = self._prepare(columns)
        noise = None
        if self._noise is not None:
            if prepared.noise is None:
                prepared.noise = self._noise_rows(columns)
            noise = prepared.noise[t]
        observation = prepared.observation[t]
        if self._only_observation:
            action, agent_info = self.agent.step(observation, env_indices=columns, noise=noise)
        else:
            inputs = self.agent_inputs(observation, t, columns)
            action, agent_info = self.agent.step(**inputs, env_indices=columns, noise=noise)
        prepared.action.write(t, action)
        prepared.info.write(t, agent_info)

    def bootstrap_value(self, t: int, columns: slice) -> None:
        """Write the value of observation row `t` into row `t` of `agent.agent_info.value`.

        Does nothing where there is no such field.
        """
        if self._has_value:
            observation = self.row_view("agent.observation", t, columns)
            inputs = self.agent_inputs(observation, t, columns)
            self._value_writer.write(t, columns, self.agent.value(**inputs, env_indices=columns))

    def final_value(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], observation: Tree
    ) -> None:
        """Write the values of final observations into `agent.final_value[rows, columns]`, leaf by leaf.

        rows, columns: [N].  observation: numpy tree, leaves [N, ...], as the agent should see
        them.  Does nothing where there is no such field.
        """
        if not self._final_values or len(rows) == 0:
            return
        inputs = self.agent_inputs(named_map(self.convert, observation), rows, columns)
        values = self.agent.value(**inputs, env_indices=columns)
        for path, field in self._final_values:
            value = self.to_numpy(part_at(values, path))
            if value.shape != np.shape(rows):
                raise ValueError(
                    f"{dotted(path, 'agent.final_value')}: expected shape {np.shape(rows)} for "
                    f"{len(rows)} final observations, the agent returned {value.shape}"
                )
            field[rows, columns] = value

    def act(self, observation: Tree, env_indices: EnvIndices) -> Tree:
        """Return actions, a numpy tree [N, ...], for a numpy tree of observations [N, ...].

        For evaluation outside of a buffer; agent infos are dropped.
        """
        inputs = self.agent_inputs(named_map(self.convert, observation), None, env_indices)
        action, _ = self.agent.step(**inputs, env_indices=env_indices)
        return buffer_map(self.to_numpy, action)

    # --- what is passed on to the agent

    def sample_mode(self) -> None:
        """Let the agent explore."""
        self._sampling, self._restore_mode = True, self.agent.sample_mode
        self.agent.sample_mode()

    def train_mode(self) -> None:
        """Let the agent prepare its models for an update."""
        self._sampling, self._restore_mode = False, self.agent.train_mode
        self.agent.train_mode()

    def eval_mode(self) -> None:
        """Let the agent exploit; its sampling state stays untouched."""
        self._sampling, self._restore_mode = False, self.agent.eval_mode
        self.agent.eval_mode()

    def reset(self) -> None:
        """Let the agent forget all recurrent state of the present mode."""
        self.agent.reset()

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Let the agent forget that of some environments."""
        self.agent.reset_one(env_indices)

    def state(self) -> State:
        """Return the state of the agent."""
        return self.agent.state()

    def load_state(self, state: State) -> None:
        """Take back what `state` returned."""
        self.agent.load_state(state)

    def close(self) -> None:
        """Close the agent; may be called twice."""
        self.agent.close()

    # --- private

    def _writer(self, name: str, field: Tree) -> RowWriter:
        return RowWriter(name, field, self.convert, self.write)

    def _batch_shape(self) -> tuple[int, int]:
        _, leaf = next(buffer_leaves(self._bound().agent.action))
        T, B = leaf.shape[:2]
        return T, B

    def _bound(self) -> Samples:
        if self._samples is None:
            raise WrongStateError(
                f"{type(self).__name__}: there is no buffer yet; call bind(samples) before sampling"
            )
        return self._samples

    def _rows_of(self, path: str, columns: slice) -> list[Tree]:
        views = self._views.get(path)
        if views is None:
            views = self._views[path] = RowViews(field_at(self._bound(), path), self.convert)
        return views.rows(columns)

    def _prepare(self, columns: slice) -> Prepared:
        prepared = Prepared(
            self._rows_of("agent.observation", columns),
            self._action_writer.within(columns),
            self._info_writer.within(columns),
        )
        self._prepared[columns.start, columns.stop] = prepared
        return prepared

    def _noise_rows(self, columns: slice) -> Sequence[Tree]:
        if hasattr(self._noise, "shape"):
            # One call splits an array into its rows, which is cheaper than T times indexing.
            return list(self._noise[:, columns])
        T, _ = self._batch_shape()
        return [buffer_map(lambda leaf, t=t: leaf[t, columns], self._noise) for t in range(T)]

    def _cell(self, leaf: Any) -> Any:
        return self.to_numpy(leaf)[0]

    def _info_fields(self, agent_info: Tree) -> Tree:
        if not hasattr(agent_info, "_fields"):
            return buffer_map(lambda leaf: Field(self._cell(leaf)), agent_info)
        fields = {}
        for name in agent_info._fields:
            padding = 1 if name in PADDED_INFO else 0
            fields[name] = buffer_map(
                lambda leaf, padding=padding: Field(self._cell(leaf), padding=padding),
                getattr(agent_info, name),
            )
        return NamedTuple(**fields)
