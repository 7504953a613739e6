"""Compiled evaluation of a small policy and its critic, without a deep-learning framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.arrays.batch_views import BatchViews
from parllel.arrays.lazy_frames import LazyFramesArray
from parllel.buffers.batches import batch_number
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays, buffer_leaves
from parllel.errors import WrongStateError
from parllel.types import CompiledActs, Tree

# Weight [n_out, n_in] and bias [n_out] of each layer, from the first to the last.
Layers: TypeAlias = Sequence[tuple[NDArray[np.float32], NDArray[np.float32]]]

INFO = ("value", "log_prob")
_REAL: tuple[Any, ...] = (np.float32, np.float64)
_WHOLE: tuple[Any, ...] = (np.int64, np.int32, np.int16, np.int8, np.uint8)
_KINDS: tuple[Any, ...] = (*_REAL, *_WHOLE, np.bool_)  # of observations


class SmallPolicy:
    """Draws actions with two fully connected networks (tanh, float32), in one compiled call per row.

    The compiled code reads observations from the batch and writes actions, log probabilities and values
    to it, without allocating. A framework takes microseconds per operation for dispatch; here there is
    one dispatch per row, so the gain is greatest for small networks and rows. The first `bind` for given
    dtypes compiles for some seconds; the result is cached on disk.

    Args:
        policy_sizes: size of an observation, number of units in each hidden layer, number of
            outputs.
        critic_sizes: the same for the critic, which has one output.
        nvec: the number of actions of each choice, if the policy's outputs are logits of
            independent choices; None if they are means of normal distributions.
        action_shape: shape of one action.
        start: the first action of each choice; defaults to 0.

    Raises:
        ValueError: if the sizes do not fit each other.
    """

    def __init__(
        self,
        policy_sizes: Sequence[int],
        critic_sizes: Sequence[int],
        *,
        nvec: Sequence[int] | None,
        action_shape: Sequence[int],
        start: Sequence[int] | None = None,
    ) -> None:
        # numba takes a third of a second to import, for those who use it alone.
        from parllel.arrays import compiled_policy as compiled
        from parllel.arrays.compiled_products import COLUMNS

        self._action_shape = tuple(action_shape)
        actions = math.prod(self._action_shape)
        n_outputs, n_choices = (actions, actions) if nvec is None else (sum(nvec), len(nvec))
        _check_sizes(policy_sizes, critic_sizes, n_outputs)
        if n_choices != actions:
            raise ValueError(
                f"SmallPolicy: action_shape: expected {n_choices} numbers, got {action_shape}"
            )
        self._policy = _Network(policy_sizes, COLUMNS)
        self._critic = _Network(critic_sizes, COLUMNS)
        self._step: Any = compiled.step_gaussian if nvec is None else compiled.step_categorical
        self._source = "gaussian" if nvec is None else "categorical"
        self._write_values: Any = compiled.write_values
        # Parameters of the distribution besides the policy's outputs.
        self._head: NDArray[Any]
        if nvec is None:
            self._head, self._action_kinds = np.zeros(actions, np.float32), _REAL
        else:
            choices = (nvec, [0] * len(nvec) if start is None else start)
            self._head, self._action_kinds = np.array(choices, np.int64), _WHOLE
        widest = max(*self._policy.padded, *self._critic.padded)
        # Allocated once, because compiled code would allocate it again in every step.
        self._scratch = np.zeros((compiled.SCRATCH, compiled.BLOCK * widest), np.float32)
        # Arguments of the compiled code besides fields of the batch.
        networks = (*self._policy.arrays, *self._critic.arrays)
        self._fixed = (*networks, self._head, self._scratch)
        self._shape = (0, 0)
        self._value_rows = 0
        self._fields: tuple[NDArray[Any], ...] = ()
        self._value_fields: tuple[NDArray[Any], ...] = ()
        self._arguments: tuple[NDArray[Any], ...] = ()
        # Views of the cells of a field by batch: observation, action, value, log probability.
        self._bound: list[Callable[[int], NDArray[Any]]] = []

    @property
    def parameters(self) -> list[NDArray[np.float32]]:
        """The parameter arrays themselves, not copies, to exchange with another policy of the same sizes."""
        networks = [self._policy.arrays[0], self._critic.arrays[0]]
        # Numbers and starts of actions are not parameters.
        return networks if self._head.dtype == np.int64 else [*networks, self._head]

    def set_parameters(
        self, policy: Layers, critic: Layers, log_std: NDArray[np.float32] | None = None
    ) -> None:
        """Copy new parameters. `log_std` has the shape of an action and is used by normal distributions."""
        self._policy.set_layers(policy)
        self._critic.set_layers(critic)
        if log_std is not None:
            np.copyto(self._head, log_std.reshape(-1))

    def bind(self, samples: Samples) -> None:
        """Set the batch to read from and write to, and compile for its dtypes.

        `agent.observation` may have any dtype that casts to float32 and any shape of the right
        size; `agent.agent_info.value` and `log_prob` may be None. Call `start_batch` before `step`.

        Raises:
            ValueError: for a field with an unexpected shape or an unsupported dtype, or an unknown
                field of the agent info.
        """
        agent = samples.agent
        T, B = self._shape = agent.action.shape[:2]
        info = getattr(agent, "agent_info", None)
        _check_info(info)
        number = batch_number(buffer_arrays(samples))
        observation = _rows("agent.observation", agent.observation, self._shape, _KINDS)
        expected, got = self._policy.sizes[0], observation(number)[0, 0].size
        if expected != got:
            raise ValueError(f"agent.observation: expected {expected} numbers, got {got}")
        kinds, cell = self._action_kinds, self._action_shape
        action = _rows("agent.action", agent.action, self._shape, kinds, cell)
        # Outputs without a field go to a dummy array, which saves the compiled code a branch.
        unread = np.zeros((T, B, 1), np.float32)
        value, log_prob = (
            (lambda _: unread)
            if getattr(info, name, None) is None
            else _rows(f"agent.agent_info.{name}", getattr(info, name), (T, B), _REAL, ())
            for name in INFO
        )
        self._bound = [observation, action, value, log_prob]
        self._value_rows = 0
        if getattr(info, "value", None) is not None:
            self._value_rows = min(len(observation(number)), len(value(number)))
        self.use_batch(number)
        noise = np.zeros((1, 1, 1), np.float32)
        self._step(0, 0, 0, noise, *self._fields)  # no columns: this compiles
        self._write_values(0, 0, 0, *self._value_fields)

    def use_batch(self, number: int) -> None:
        """Switch to batch `number` of a buffer that holds several. Call `start_batch` before `step`."""
        observation, action, value, log_prob = (rows(number) for rows in self._bound)
        value, log_prob = value[..., 0], log_prob[..., 0]
        self._fields = (observation, action, value, log_prob, *self._fixed)
        self._value_fields = (observation, value, *self._critic.arrays, self._scratch)
        # Empty until `start_batch`, so that no step uses the noise of the previous batch.
        self._arguments = ()

    def start_batch(self, noise: NDArray[np.float32]) -> None:
        """Set the noise of a batch, [T, B, ...]: standard Gumbel for choices, else standard normal.

        The noise is read in place until the next batch.

        Raises:
            WrongStateError: before `bind`.
            ValueError: if the noise has another shape or dtype.
        """
        if not self._fields:
            raise WrongStateError("SmallPolicy: no batch is bound; call bind(samples) first")
        expected = (*self._shape, self._policy.sizes[-1])
        flat = noise.reshape(*noise.shape[:2], -1)
        if flat.shape != expected or flat.dtype != np.float32:
            raise ValueError(
                f"noise: expected float32 of shape {expected}, got {noise.dtype} {noise.shape}"
            )
        self._arguments = (np.ascontiguousarray(flat), *self._fields)

    def step(self, t: int, columns: slice) -> None:
        """Read observations and noise of row `t`; write actions, log probabilities and values.

        Raises:
            WrongStateError: before `start_batch`.
            IndexError: if the row does not exist.
            ValueError: if the columns have a step.
        """
        start, stop = self._columns(t, columns, self._shape[0])
        self._step(t, start, stop, *self._arguments)

    def compiled_acts(self) -> CompiledActs:
        """Return the policy in a form that compiled environments can call. Call `start_batch` first."""
        if not self._arguments:
            raise _not_started()
        return CompiledActs(self._source, self._arguments)

    def decide(
        self, observation: NDArray[Any], noise: NDArray[np.float32]
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32]]:
        """Return actions [N, ...], log probabilities [N] and values [N] for observations outside a batch.

        observation: [N, ...] of a type that `bind` accepts.  noise: [N, ...], as for `start_batch`.

        Raises:
            ValueError: if either has another shape or dtype.
        """
        n, outputs = len(observation), self._policy.sizes[-1]
        if observation[:1].size not in (0, self._policy.sizes[0]):
            expected, got = self._policy.sizes[0], observation.shape[1:]
            raise ValueError(f"observation: expected {expected} numbers, got cells of shape {got}")
        if observation.dtype not in _KINDS:
            raise ValueError(
                f"observation: expected one of {_names(_KINDS)}, got {observation.dtype}"
            )
        if len(noise) != n or noise.size != n * outputs or noise.dtype != np.float32:
            raise ValueError(
                f"noise: expected float32 of shape {(n, outputs)}, got {noise.dtype} {noise.shape}"
            )
        # As a contiguous batch of one row, so that no other variant has to be compiled.
        rows = np.ascontiguousarray(observation).reshape(1, n, self._policy.sizes[0])
        drawn = np.ascontiguousarray(noise).reshape(1, n, outputs)
        action = np.empty((1, n, math.prod(self._action_shape)), self._action_kinds[0])
        value, log_prob = np.empty((2, 1, n), np.float32)
        self._step(0, 0, n, drawn, rows, action, value, log_prob, *self._fixed)
        return action.reshape(n, *self._action_shape), log_prob[0], value[0]

    def write_values(self, t: int, columns: slice) -> None:
        """Write the values of observation row `t`, which may be in the end padding.

        Does nothing if there is no value field. Raises the same errors as `step`.
        """
        if self._value_rows:
            start, stop = self._columns(t, columns, self._value_rows)
            self._write_values(t, start, stop, *self._value_fields)

    def _columns(self, t: int, columns: slice, rows: int) -> tuple[int, int]:
        """Check bounds, which compiled code would silently exceed."""
        if not self._arguments:
            raise _not_started()
        if not 0 <= t < rows:
            raise IndexError(f"row: expected 0 to {rows - 1}, got {t}")
        start, stop, step = columns.indices(self._shape[1])
        if step != 1:
            raise ValueError(f"columns: expected a slice without a step, got {columns}")
        return start, stop


class _Network:
    """Parameters of a network in one array, in the order and layout that compiled code reads.

    Attributes:
        sizes: of the input and of each layer.
        padded: the same, with hidden layers of a multiple of `columns` units, those that were added with
            weights of zero.
    """

    def __init__(self, sizes: Sequence[int], columns: int) -> None:
        self.sizes = tuple(sizes)
        first, *hidden, last = self.sizes
        self.padded = (first, *(-(-n // columns) * columns for n in hidden), last)
        parameters = np.zeros(sum((n + 1) * m for n, m in pairwise(self.padded)), np.float32)
        self.arrays = (parameters, np.array(self.padded, np.int64))
        self._layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
        end = 0
        for (n, m), own in zip(pairwise(self.padded), pairwise(self.sizes), strict=True):
            start, middle, end = end, end + n * m, end + (n + 1) * m
            weight, bias = parameters[start:middle], parameters[middle:end]
            is_last = end == len(parameters)
            weight = weight.reshape(m, n) if is_last else weight.reshape(n, m).T
            self._layers.append((weight[: own[1], : own[0]], bias[: own[1]]))

    def set_layers(self, layers: Layers) -> None:
        """Copy weights [n_out, n_in] and biases [n_out]."""
        for (weight, bias), (new_weight, new_bias) in zip(self._layers, layers, strict=True):
            np.copyto(weight, new_weight)
            np.copyto(bias, new_bias)


def _not_started() -> WrongStateError:
    return WrongStateError("SmallPolicy: no batch has been started; call start_batch first")


def _check_sizes(policy: Sequence[int], critic: Sequence[int], n_outputs: int) -> None:
    for name, sizes, expected in (("policy", policy, n_outputs), ("critic", critic, 1)):
        if len(sizes) < 2 or min(sizes) < 1 or sizes[-1] != expected:
            raise ValueError(
                f"SmallPolicy: {name}_sizes: expected sizes of 1 or more, inputs first and "
                f"{expected} outputs last, got {list(sizes)}"
            )
    if policy[0] != critic[0]:
        raise ValueError(
            f"SmallPolicy: critic_sizes: expected {policy[0]} inputs as the policy has, got {critic[0]}"
        )


def _check_info(info: Tree) -> None:
    for name, _ in buffer_leaves(info):
        if name not in INFO:
            raise ValueError(f"agent.agent_info: expected no fields but {INFO}, got {name!r}")


def _rows(
    name: str,
    field: Tree,
    batch_shape: tuple[int, int],
    kinds: Sequence[Any],
    cell: tuple[int, ...] | None = None,
) -> Callable[[int], NDArray[Any]]:
    """Return a function from batch number to a view [rows, B, n] of a field, end padding included.

    cell: the expected shape of its cells.
    """
    if not hasattr(field, "padding"):
        raise ValueError(f"{name}: expected one Array, got {type(field).__name__}")
    if isinstance(field, LazyFramesArray):
        raise ValueError(
            f"{name}: expected an array with rows in memory, got a LazyFramesArray, which rebuilds stacks "
            "on reading; allocate it without frames"
        )
    if field.shape[:2] != batch_shape:
        raise ValueError(f"{name}: expected [T, B] = {batch_shape}, got {field.shape[:2]}")
    views, n_rows = BatchViews(field), len(field) + field.padding
    array = views.memory
    if cell is not None and array.shape[2:] != cell:
        raise ValueError(f"{name}: expected cells of shape {cell}, got {array.shape[2:]}")
    if array.dtype not in kinds:
        raise ValueError(f"{name}: expected one of {_names(kinds)}, got {array.dtype}")
    rows = array.reshape(*array.shape[:2], -1)
    if not np.may_share_memory(rows, array):  # reshape had to copy
        raise ValueError(
            f"{name}: expected cells of contiguous memory, got strides {array.strides}"
        )

    def rows_of(number: int) -> NDArray[Any]:
        start = views.start(number)
        return rows[start : start + n_rows]

    return rows_of


def _names(kinds: Sequence[Any]) -> str:
    return ", ".join(np.dtype(kind).name for kind in kinds)
