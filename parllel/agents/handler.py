"""The handler between a sampler, which works on rows and columns of the batch, and an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.agents.agent import Agent, EnvIndices
from parllel.agents.bound_samples import BoundSamples, StepViews
from parllel.agents.small_worker_policy import SmallWorkerPolicy
from parllel.buffers.paths import dotted, part_at
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map, named_map
from parllel.errors import WrongStateError
from parllel.types import CompiledActs, State, Tree, overrides


class Handler(ABC):
    """Passes rows of the batch to an agent and writes its outputs. All views are created only once.

    Subclasses add a framework with three methods: `convert`, `write` and `to_numpy`. Override
    `agent_inputs` for an agent that needs more than the observation.

    Samplers call `bind` before sampling and when buffers change, `use_batch` if the buffer holds several
    batches, `start_batch` before each batch, then `step` for rows 0 to T - 1, and `bootstrap_value` for
    row T.

    Attributes:
        agent: the agent.
        restore_mode: function that returns the agent to the most recently set mode.
        noise_source: function that draws the noise of a batch in place of `agent.draw_noise(T, B)`,
            or None.
    """

    def __init__(self, agent: Agent) -> None:
        if not isinstance(agent, Agent):
            raise TypeError(
                f"{type(self).__name__}: agent: expected an Agent, got a {type(agent).__name__}"
            )
        self.agent = agent
        self._sampling = True
        self.restore_mode = agent.sample_mode
        self._bound: BoundSamples | None = None
        self._prepared: dict[tuple[Any, Any], StepViews] = {}
        self._noise: Tree = None
        # Functions that step some columns in the current batch, keyed like `prepared`.
        self._steps: dict[tuple[Any, Any], Callable[[int], None]] = {}
        self.noise_source: Callable[[int, int], Tree] | None = None
        # Packing and unpacking the inputs costs as much as the rest of a step.
        self._only_observation = type(self).agent_inputs is Handler.agent_inputs

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.agent!r})"

    # --- framework interface

    @abstractmethod
    def convert(self, array: NDArray[Any]) -> Any:
        """Return a view of `array` in the agent's framework, over the same memory."""

    @abstractmethod
    def write(self, view: Any, value: Any, /) -> object:
        """Copy `value`, one leaf of the agent's output, into `view`, which was returned by `convert`.

        The return value is ignored.
        """

    @abstractmethod
    def to_numpy(self, value: Any) -> NDArray[Any]:
        """Return one leaf of the agent's output as a numpy array."""

    # --- inputs of the agent

    def agent_inputs(
        self, observation: Tree, rows: int | NDArray[np.intp] | None, columns: EnvIndices
    ) -> dict[str, Tree]:
        """Return the keyword arguments of `agent.step` and `agent.value`.

        Override it to pass more, for example `{..., "agent_id": self.ids[columns]}`; `row_view`
        returns views of any other field of the samples.

        observation: a tree in the agent's framework, with leaves [N, ...].
        rows: a row number; an array [N] for final observations; None outside a batch.
        columns: a slice, or an array [N].
        """
        return {"observation": observation}

    def row_view(self, path: str, t: int, columns: slice) -> Tree:
        """Return a view of row `t` of the field at `path`, such as "agent.observation"."""
        return self._in_use().rows_of(path, columns)[t]

    # --- sampler interface

    def bind(self, samples: Samples) -> None:
        """Set the buffer to read from and write to. Views are created on first use."""
        self._bound = BoundSamples(samples, self.convert, self.write)
        self._prepared, self._steps = self._bound.prepared, {}

    def use_batch(self, number: int) -> None:
        """Switch to batch `number` of a buffer with several batches, without binding again.

        A subclass that keeps views of its own should override both this method and `bind`. If it
        overrides only `bind`, it is bound again for each batch.
        """
        bound = self._in_use()
        bound.use_batch(number)
        self._prepared, self._steps = bound.prepared, {}

    def release(self) -> None:
        """Drop the buffer and all views. `act` still works, and `bind` sets another buffer.

        A subclass that keeps views of its own should override both this method and `bind`.
        """
        self._bound, self._prepared, self._noise, self._steps = None, {}, None, {}

    def _models(self) -> list[Any]:
        """Return the agent's models; empty if it does not implement `models`."""
        try:
            return list(self.agent.models().values())
        except NotImplementedError:  # raised again when models are sent to other processes
            return []

    @property
    def samples(self) -> Samples | None:
        """The bound buffer, or None."""
        return None if self._bound is None else self._bound.samples

    def provides_for(self, policy: Any) -> bool:
        """Return whether this handler's `start_batch` provides the inputs of a policy that acts in workers.

        policy: the argument of `SynchronizedProcessCage.set_policy`. Returns True for an unknown
            policy, which may need no inputs.
        """
        # A SmallWorkerPolicy reads parameters that only its own handler publishes.
        return getattr(policy, "func", None) is not SmallWorkerPolicy

    def start_batch(self) -> None:
        """Draw the batch's noise in sample mode, clear final values, and store the recurrent state.

        If the samples have these fields, noise is also written to `agent.noise`, for policies in
        other processes, and the initial recurrent state to `agent.initial_rnn_state` [1, B, ...].
        """
        bound = self._in_use()
        for _, final_value in bound.final_values:
            # Only cells of truncated episodes are written; others would keep values of the last batch.
            final_value.fill(0)
        if bound.initial_states:
            state = self.agent.initial_rnn_state(slice(0, bound.B))
            for path, field in bound.initial_states:
                # Stored before the first step changes it; `copyto` casts to the field's dtype.
                np.copyto(field, self.to_numpy(part_at(state, path)))
        # One call is cheaper than T, and makes a cell's noise independent of the order of steps.
        draw = self.noise_source or self.agent.draw_noise
        self._noise = draw(bound.T, bound.B) if self._sampling else None
        # They hold the noise of the previous batch.
        self._steps = {}
        if self._noise is not None:
            for path, field in bound.noise:
                np.copyto(field, self.to_numpy(part_at(self._noise, path)))

    def step(self, t: int, columns: slice) -> None:
        """Step the agent on `agent.observation[t, columns]`, and write action and agent info to row `t`."""
        # Keyed by start and stop, because slices are not hashable before Python 3.12.
        key = columns.start, columns.stop
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._bind_step(columns)
        step(t)

    def bound_step(self, columns: slice) -> Callable[[int], None]:
        """Return a function that calls `step(t, columns)` for a row of this batch.

        Samplers look it up after `start_batch`. A subclass that overrides `step` is called in every row.
        """
        if overrides(self, Handler, "step"):
            return partial(self.step, columns=columns)
        return self._bind_step(columns)

    def _bind_step(self, columns: slice) -> Callable[[int], None]:
        """Return a function that steps the agent in these columns, with all look-ups made."""
        views = self._views(columns)
        observations, noise = views.observation, self._noise_of(columns)
        write_action, write_info = views.action.write, views.info.write
        agent_step, only_observation = self.agent.step, self._only_observation

        def step(t: int) -> None:
            noise_now = None if noise is None else noise[t]
            if only_observation:
                action, agent_info = agent_step(
                    observations[t], env_indices=columns, noise=noise_now
                )
            else:
                inputs = self.agent_inputs(observations[t], t, columns)
                action, agent_info = agent_step(**inputs, env_indices=columns, noise=noise_now)
            write_action(t, action)
            write_info(t, agent_info)

        return step

    def compiled_acts(self) -> CompiledActs | None:
        """Return how compiled code finds the actions of this batch, or None if it cannot.

        Samplers ask after `start_batch` where the environments are compiled too, and then never call `step`.
        """
        return None

    def bootstrap_value(self, t: int, columns: slice) -> None:
        """Write the values of observation row `t` into row `t` of `agent.agent_info.value`.

        Does nothing if there is no such field.
        """
        bound = self._in_use()
        if bound.has_value:
            observation = self.row_view("agent.observation", t, columns)
            inputs = self.agent_inputs(observation, t, columns)
            bound.write_value(t, columns, self.agent.value(**inputs, env_indices=columns))

    def final_value(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], observation: Tree
    ) -> None:
        """Write the values of final observations into `agent.final_value[rows, columns]`, leaf by leaf.

        rows, columns: [N].  observation: numpy tree with leaves [N, ...], after transforms.

        The observations are also written to `agent.final_observation`. Fields that do not exist are
        skipped.
        """
        bound = self._in_use()
        if len(rows) == 0:
            return
        for path, field in bound.final_observations:
            field[rows, columns] = part_at(observation, path)
        if not bound.final_values:
            return
        inputs = self.agent_inputs(named_map(self.convert, observation), rows, columns)
        values = self.agent.value(**inputs, env_indices=columns)
        for path, field in bound.final_values:
            value = self.to_numpy(part_at(values, path))
            # Checked here, because assignment would broadcast [1], or a scalar, to all rows.
            if value.shape != np.shape(rows):
                raise ValueError(
                    f"{dotted(path, 'agent.final_value')}: expected shape {np.shape(rows)} for "
                    f"{len(rows)} final observations, the agent returned {value.shape}"
                )
            field[rows, columns] = value

    def decide(
        self, observation: Tree, env_indices: EnvIndices, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Return `(action, agent_info)`, numpy trees [N, ...], for observations outside a buffer.

        The result is bit-identical to the result of `step` for the same observations, noise and N.
        With a different grouping, results may differ by float32 rounding: on one thread, PyTorch
        rounds products of 1 to 3 rows differently from products of 4 or more. The same is true of
        the last N % 4 rows, and of rows whose memory is not aligned to 16 bytes. The arrays may
        belong to the agent: copy them to keep them beyond its next step.

        observation: numpy tree [N, ...], in the dtypes of the buffer, after transforms.
        env_indices: the environments of the observations, for recurrent agents.

        noise: [N, ...], cells of the noise from `agent.draw_noise`, also accepted as numpy arrays.
            With None the agent draws its own, in sample mode.
        """
        inputs = self.agent_inputs(named_map(self.convert, observation), None, env_indices)
        if noise is not None:
            noise = buffer_map(
                lambda leaf: self.convert(leaf) if isinstance(leaf, np.ndarray) else leaf, noise
            )
        action, agent_info = self.agent.step(**inputs, env_indices=env_indices, noise=noise)
        return buffer_map(self.to_numpy, action), buffer_map(self.to_numpy, agent_info)

    def act(self, observation: Tree, env_indices: EnvIndices) -> Tree:
        """Return only the actions of `decide`, for evaluation."""
        return self.decide(observation, env_indices)[0]

    # --- forwarded to the agent

    def sample_mode(self) -> None:
        """Switch the agent to sampling."""
        # Remembered, because examples and measurements change the mode temporarily.
        self._sampling, self.restore_mode = True, self.agent.sample_mode
        self.agent.sample_mode()

    def train_mode(self) -> None:
        """Switch the agent's models to training."""
        self._sampling, self.restore_mode = False, self.agent.train_mode
        self.agent.train_mode()

    def eval_mode(self) -> None:
        """Switch the agent to evaluation. Its sampling state is kept."""
        self._sampling, self.restore_mode = False, self.agent.eval_mode
        self.agent.eval_mode()

    def reset(self) -> None:
        """Reset all recurrent state of the current mode."""
        self.agent.reset()

    def reset_one(self, env_indices: EnvIndices) -> None:
        """Reset the recurrent state of some environments."""
        self.agent.reset_one(env_indices)

    def state(self) -> State:
        """Return the state of the agent."""
        return self.agent.state()

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self.agent.load_state(state)

    def close(self) -> None:
        """Close the agent. Idempotent."""
        self.agent.close()

    # --- private

    def _views(self, columns: slice) -> StepViews:
        views = self._prepared.get((columns.start, columns.stop))
        return self._in_use().prepare(columns) if views is None else views

    def _noise_of(self, columns: slice) -> Sequence[Tree] | None:
        """Return rows of the batch's noise for some columns, or None."""
        return None if self._noise is None else self._in_use().rows_of_noise(self._noise, columns)

    def _in_use(self) -> BoundSamples:
        if self._bound is None:
            raise WrongStateError(
                f"{type(self).__name__}: no buffer is bound; call bind(samples) before sampling"
            )
        return self._bound
