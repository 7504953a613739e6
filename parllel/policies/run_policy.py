"""Policy of a trained run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from parllel.agents.handler import Handler
from parllel.buffers.paths import dotted, leaf_paths, part_at
from parllel.buffers.tree import buffer_map, named_map
from parllel.cages.spaces import Spaces, example_of, stack_reader
from parllel.cages.stepping.make_envs import EnvFactory
from parllel.errors import ClosedError
from parllel.policies.policy import Policy, checked_numbers
from parllel.types import State, Tree


class RunPolicy(Policy):
    """Trained policy: the agent of a run in eval mode, with the run's step transforms.

    Observations and actions are cast, clipped and transformed as by the cages and the evaluation sampler of
    the run. Products of float32 matrices round differently for one row, or three, than for sixteen, so the
    agent always computes blocks of the same number of rows, padded with copies of the first row. So actions
    do not depend on how many environments are in a call. With some layer sizes, the last bit of a row depends
    on its position in the block; `rows=1` removes this as well.

    Not thread-safe: blocks are reused.

    Args:
        handler: handler of the agent, in eval mode; closed together with the policy.
        as_seen: function that maps observations [N, ...] to the agent's input.
        spaces: spaces of the environments.
        observation, action: zeros [1, ...] in the shapes and dtypes of the run's buffer.
        n_columns: number of environments of the run's evaluation.
        env_factories: the factories of these environments, by column.
        elapsed_steps: environment steps of training.
        rows: block size; None computes all observations of a call at once.

    Attributes:
        handler: the handler, whose `agent` has the trained models.
        as_seen: maps observations [N, ...] of environments to what the agent sees: it normalises them.
        example: the observation of zeros.

    Raises:
        ValueError: if `rows` is less than one.
    """

    def __init__(
        self,
        handler: Handler,
        as_seen: Callable[[Tree], Tree],
        spaces: Spaces,
        observation: Tree,
        action: Tree,
        *,
        n_columns: int,
        env_factories: Sequence[EnvFactory] = (),
        elapsed_steps: int = 0,
        rows: int | None = 16,
    ) -> None:
        check_rows(rows)
        agent = handler.agent
        self.observation_space, self.action_space = spaces.observation, spaces.action
        self.recurrent = agent.recurrent
        self.env_factories = list(env_factories)
        self.elapsed_steps = elapsed_steps
        self.rows = rows
        self.handler, self.as_seen = handler, as_seen
        self.example = named_map(np.asarray, observation)
        self._action_dtypes = named_map(lambda leaf: np.asarray(leaf).dtype, action)
        self._action_space: gym.Space[Any] = spaces.action
        # Without memory no slots are needed, which would grow with every new number.
        own_inputs = type(handler).agent_inputs is not Handler.agent_inputs
        self._by_number = agent.recurrent or own_inputs
        # A recurrent agent remembers padding rows too, so they need slots that no environment uses.
        n_spare = (rows or 0) if agent.recurrent else 0
        self._slots = _EnvSlots(n_columns, n_spare)
        # Reused by every block; allocated once the number of rows is known.
        self._block: Tree = None
        self._block_size = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"RunPolicy({self.handler.agent!r}, {self.elapsed_steps:,} environment steps)"

    @property
    def model(self) -> Any:
        """The agent's trained model: for agents of `parllel.torch`, the torch module that chooses actions.

        It is the module itself, in eval mode, so it shares its weights with this policy. Its input is what
        the agent sees: a run with NormalizeObservations trained it on normalised observations, so call it as
        `policy.model(torch.from_numpy(policy.as_seen(observations)))`. Its output is what the agent's
        distribution takes: `PgOutput(params, value)` for policy gradients, action values for DQN.
        `parllel.torch.PolicyModule(policy)` maps observations of environments to actions instead, and
        includes the normalisation.

        For agents of `parllel.jax` it is a `Model`, which takes and returns arrays.

        Raises:
            AttributeError: if the agent has no model, or several. `policy.handler.agent` is the agent.
        """
        agent = self.handler.agent
        try:
            return agent.model  # type: ignore[attr-defined]
        except AttributeError:
            raise AttributeError(
                f"model: {type(agent).__name__} has no single model; see policy.handler.agent"
            ) from None

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return actions [N, ...] for observations [N, ...], as in the run's evaluation.

        Raises:
            ValueError: if the shapes of the observations differ from the space's.
            ClosedError: after `close`.
        """
        self._check_open()
        leaves = self._leaves_of(observation)
        n = len(leaves[0])
        if n == 0:  # nothing to copy into the rows of a block
            return buffer_map(
                lambda leaf: np.asarray(leaf)[np.newaxis][:0], example_of(self._action_space)
            )
        slots = self._slots_of(checked_numbers(env_indices, n))
        size = n if self.rows is None else self.rows
        parts = [
            self._act([leaf[i : i + size] for leaf in leaves], slots[i : i + size], size)
            for i in range(0, n, size)
        ]
        return parts[0] if len(parts) == 1 else buffer_map(_joined, *parts)

    def _act(self, leaves: list[NDArray[Any]], slots: NDArray[np.intp], size: int) -> Tree:
        """Return the actions of at most `size` rows, computed as a block of `size` rows."""
        n = len(slots)
        if size != self._block_size:
            self._prepare(size)
        for (_, row), leaf in zip(leaf_paths(self._block), leaves, strict=True):
            row[:n] = leaf  # casts as a cage's write into the buffer does
            row[n:] = row[:1]
        if n < size:
            spare = self._slots.spare[: size - n]
            # Without memory, padding rows may use the number of the row that they copy.
            slots = np.concatenate((slots, spare if len(spare) else np.repeat(slots[:1], size - n)))
        action = self.handler.act(self.as_seen(self._block), slots)
        # Cast to the buffer's dtypes, from which cages read actions in an evaluation.
        stored = buffer_map(lambda dtype, leaf: leaf.astype(dtype), self._action_dtypes, action)
        actions = self._read(stored)
        return actions if n == size else buffer_map(lambda leaf: leaf[:n], actions)

    def _prepare(self, size: int) -> None:
        """Allocate the memory for blocks of a size."""
        self._block_size = size
        self._block = buffer_map(
            lambda leaf: np.zeros((size, *leaf.shape[1:]), leaf.dtype), self.example
        )
        self._read = stack_reader(self._action_space, size)

    def _leaves_of(self, observation: Tree) -> list[NDArray[Any]]:
        """Return the leaves in the buffer's order, after checking their shapes."""
        leaves: list[NDArray[Any]] = []
        for path, expected in leaf_paths(self.example):
            wanted = f"[{', '.join(['N', *map(str, expected.shape[1:])])}]"
            try:
                leaf = np.asarray(part_at(observation, path))
            except KeyError as error:
                raise ValueError(f"observation: {error.args[0]}") from None
            except (
                ValueError
            ):  # parts of different shapes, such as the pair that `env.reset` returns
                raise ValueError(
                    f"{dotted(path, 'observation')}: expected an array {wanted}, got a "
                    f"{type(observation).__name__} of {len(observation)} parts"
                ) from None
            n = leaf.shape[:1] if not leaves else leaves[0].shape[:1]
            # Checked before the write, which would broadcast.
            if leaf.ndim == 0 or leaf.shape != (*n, *expected.shape[1:]):
                raise ValueError(
                    f"{dotted(path, 'observation')}: expected shape {wanted}, "
                    f"got {list(leaf.shape)}"
                )
            leaves.append(leaf)
        return leaves

    def _slots_of(self, numbers: list[int]) -> NDArray[np.intp]:
        return self._slots.of(numbers) if self._by_number else np.arange(len(numbers))

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Clear the agent's memory of episodes. Seeds have no effect, because the agent acts greedily."""
        self._check_open()
        if env_indices is None:
            self.handler.reset()
            self._slots.set_others([])
            return
        numbers = checked_numbers(env_indices)
        if self._by_number and numbers:
            self.handler.reset_one(self._slots_of(numbers))

    def make_env(self) -> gym.Env[Any, Any]:
        """Make an environment like those of the run's evaluation.

        Raises:
            ValueError: if the cages of the run have no env_factories.
        """
        if not self.env_factories:
            raise ValueError(
                "make_env: expected cages with env_factories, got some without. Create the "
                "environment yourself"
            )
        env: gym.Env[Any, Any] = self.env_factories[0]()
        return env

    def state(self) -> State:
        """Return the agent's memory of episodes and the state of its generators."""
        agent = self.handler.agent
        # Without weights: they are in the run's folder, and would make every state as large.
        learned = agent.models()
        others = {name: part for name, part in agent.state().items() if name not in learned}
        return {"others": others, "memory": agent.memory(), "numbers": self._slots.others()}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        agent = self.handler.agent
        agent.load_state({**agent.state(), **state["others"]})
        agent.load_memory(state["memory"])
        self._slots.set_others(state["numbers"])

    def close(self) -> None:
        """Close the agent. Idempotent."""
        if not self._closed:
            self._closed = True
            self.handler.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("RunPolicy: used after close()")


class _EnvSlots:
    """Assign each environment the lowest free slot, because an agent's memory grows to the highest slot.

    The first `n_columns` numbers keep their own slots: they are columns of the run, by which a handler may
    look something up. The next `n_spare` slots are reserved for padding rows.

    Args:
        n_columns: of the run.
        n_spare: number of reserved slots.
    """

    def __init__(self, n_columns: int, n_spare: int) -> None:
        self._n_columns = n_columns
        self.spare = np.arange(n_columns, n_columns + n_spare)
        self._first = n_columns + n_spare
        self._others: dict[int, int] = {}

    def of(self, numbers: Sequence[int]) -> NDArray[np.intp]:
        """Return the slots of environments as an array [N]."""
        return np.array([self._slot(number) for number in numbers], np.intp)

    def _slot(self, number: int) -> int:
        if number < self._n_columns:
            return number
        return self._others.setdefault(number, self._first + len(self._others))

    def others(self) -> list[int]:
        """Return the environment numbers beyond the columns, in the order of their slots."""
        return list(self._others)

    def set_others(self, numbers: Sequence[int]) -> None:
        """Restore numbers returned by `others`; [] forgets all."""
        self._others = {int(number): self._first + i for i, number in enumerate(numbers)}


def check_rows(rows: Any) -> None:
    """Raise ValueError unless `rows` is None or an int of at least 1."""
    if rows is None:
        return
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise ValueError(f"rows: expected an int of at least 1, or None, got {rows!r}")


def _joined(*parts: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate(parts)
