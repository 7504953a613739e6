"""The handler stands between a sampler, which knows rows and columns, and an agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
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
from parllel.types import State, Tree


class Handler(ABC):
    """Let an agent read and write rows of the batch through views that are made once.

    A framework is added by three methods: `convert`, `write` and `to_numpy`. An agent that wants
    more than the observation gets it from a subclass that overrides `agent_inputs`.

    Samplers call `bind` before sampling and when buffers change, `use_batch` where the buffer holds several
    batches, `start_batch` before each batch, then `step` for rows 0 to T - 1, and `bootstrap_value` for
    row T.

    Attributes:
        agent: the argument of that name.
        restore_mode: puts the agent back into the mode that it was asked for last.
        noise_source: draws the noise of a batch in place of `agent.draw_noise(T, B)`, unless None.
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
        self.noise_source: Callable[[int, int], Tree] | None = None
        # Packing and unpacking the inputs costs as much as all else in a step together.
        self._only_observation = type(self).agent_inputs is Handler.agent_inputs

    # --- what a framework provides

    @abstractmethod
    def convert(self, array: NDArray[Any]) -> Any:
        """Return a view of `array` in the agent's framework; both share their memory."""

    @abstractmethod
    def write(self, view: Any, value: Any, /) -> object:
        """Copy `value`, one leaf from the agent, into `view`, which came from `convert`.

        What it returns is ignored.
        """

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
        return self._in_use().rows_of(path, columns)[t]

    # --- what a sampler calls

    def bind(self, samples: Samples) -> None:
        """Take the buffer to read from and write to; views are made when first used."""
        self._bound = BoundSamples(samples, self.convert, self.write)
        self._prepared = self._bound.prepared

    def use_batch(self, number: int) -> None:
        """Go over to batch `number` of a buffer that holds several, instead of being bound anew.

        Override it with `bind` where a subclass keeps views of its own: one that overrides `bind` alone is
        bound for each batch.
        """
        bound = self._in_use()
        bound.use_batch(number)
        self._prepared = bound.prepared

    def release(self) -> None:
        """Forget the buffer and what belongs to it; `act` goes on, and `bind` takes another.

        Override it with `bind` where a subclass keeps views of its own.
        """
        self._bound, self._prepared, self._noise = None, {}, None

    def _models(self) -> list[Any]:
        """Return the agent's models, none for an agent that does not implement `models`."""
        try:
            return list(self.agent.models().values())
        except NotImplementedError:  # raised again by what sends them to other processes
            return []

    @property
    def samples(self) -> Samples | None:
        """The buffer that it was bound to; None before."""
        return None if self._bound is None else self._bound.samples

    def provides_for(self, policy: Any) -> bool:
        """Return whether a policy that acts in workers gets what it needs from this handler's `start_batch`.

        policy: what `SynchronizedProcessCage.set_policy` was given. True for one that is not known, which may
            need nothing.
        """
        # It reads the parameters that its own handler publishes.
        return getattr(policy, "func", None) is not SmallWorkerPolicy

    def start_batch(self) -> None:
        """Draw the noise of the batch, in sample mode, clear the final values, keep the recurrent state.

        Where the samples have a field `agent.noise` it is written there too, for policies in other processes;
        and the state that the batch starts from to `agent.initial_rnn_state` [1, B, ...].
        """
        bound = self._in_use()
        for _, final_value in bound.final_values:
            # Only rows in which an episode was truncated are written, and the batch before has left its own.
            final_value.fill(0)
        if bound.initial_states:
            state = self.agent.initial_rnn_state(slice(0, bound.B))
            for path, field in bound.initial_states:
                # Kept before the first step changes it; `copyto` casts to the type of the field.
                np.copyto(field, self.to_numpy(part_at(state, path)))
        # All at once: one call is cheaper than T, and a cell's noise is the same in whatever order rows are
        # stepped.
        draw = self.noise_source or self.agent.draw_noise
        self._noise = draw(bound.T, bound.B) if self._sampling else None
        for prepared in self._prepared.values():
            # Rows of the batch before, which would be used again.
            prepared.noise = None
        if self._noise is not None:
            for path, field in bound.noise:
                np.copyto(field, self.to_numpy(part_at(self._noise, path)))

    def step(self, t: int, columns: slice) -> None:
        """Read `agent.observation[t, columns]`; write the action and agent info of that row."""
        # By its ends, as slices cannot be hashed before Python 3.12.
        prepared = self._prepared.get((columns.start, columns.stop))
        if prepared is None:
            prepared = self._in_use().prepare(columns)
        noise = None
        if self._noise is not None:
            if prepared.noise is None:
                prepared.noise = self._in_use().rows_of_noise(self._noise, columns)
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
        bound = self._in_use()
        if bound.has_value:
            observation = self.row_view("agent.observation", t, columns)
            inputs = self.agent_inputs(observation, t, columns)
            bound.write_value(t, columns, self.agent.value(**inputs, env_indices=columns))

    def final_value(
        self, rows: NDArray[np.intp], columns: NDArray[np.intp], observation: Tree
    ) -> None:
        """Write the values of final observations into `agent.final_value[rows, columns]`, leaf by leaf.

        rows, columns: [N].  observation: numpy tree, leaves [N, ...], as the agent should see
        them; they are written to `agent.final_observation`.  Does nothing where there are no such fields.
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
            # Compared here, as assigning to indices would broadcast [1], or a single number, to all rows.
            if value.shape != np.shape(rows):
                raise ValueError(
                    f"{dotted(path, 'agent.final_value')}: expected shape {np.shape(rows)} for "
                    f"{len(rows)} final observations, the agent returned {value.shape}"
                )
            field[rows, columns] = value

    def decide(
        self, observation: Tree, env_indices: EnvIndices, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Return `(action, agent_info)`, numpy trees [N, ...], for environments gathered outside of a buffer.

        They have the bits that `step` writes for the same observations, noise and N. Where one of these
        differs, an environment's own numbers may differ by a rounding of float32: PyTorch on one thread
        rounds products of 1 to 3 rows differently from those of 4 or more, and the last N % 4 rows from
        the others, and rows whose memory does not begin at a multiple of 16 bytes. The arrays may be the
        agent's own: copy what is to outlive its next step.

        observation: numpy tree [N, ...], in the types of the buffer, as the agent should see them.
        env_indices: which environments they are of, for an agent that remembers.

        noise: [N, ...], cells of what `agent.draw_noise` returned, or of the same in numpy. None lets the
            agent draw, in sample mode.
        """
        inputs = self.agent_inputs(named_map(self.convert, observation), None, env_indices)
        if noise is not None:
            noise = buffer_map(
                lambda leaf: self.convert(leaf) if isinstance(leaf, np.ndarray) else leaf, noise
            )
        action, agent_info = self.agent.step(**inputs, env_indices=env_indices, noise=noise)
        return buffer_map(self.to_numpy, action), buffer_map(self.to_numpy, agent_info)

    def act(self, observation: Tree, env_indices: EnvIndices) -> Tree:
        """Return the actions of `decide`, for evaluation."""
        return self.decide(observation, env_indices)[0]

    # --- what is passed on to the agent

    def sample_mode(self) -> None:
        """Let the agent explore."""
        # Kept, because examples and measurements change the mode for a moment.
        self._sampling, self.restore_mode = True, self.agent.sample_mode
        self.agent.sample_mode()

    def train_mode(self) -> None:
        """Let the agent prepare its models for an update."""
        self._sampling, self.restore_mode = False, self.agent.train_mode
        self.agent.train_mode()

    def eval_mode(self) -> None:
        """Let the agent exploit; its sampling state stays untouched."""
        self._sampling, self.restore_mode = False, self.agent.eval_mode
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

    def _in_use(self) -> BoundSamples:
        if self._bound is None:
            raise WrongStateError(
                f"{type(self).__name__}: there is no buffer yet; call bind(samples) before sampling"
            )
        return self._bound
