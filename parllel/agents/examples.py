"""Examples of an agent's outputs, from which the agent's fields are allocated."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from parllel.agents.handler import Handler
from parllel.buffers.allocation import Field
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_leaves, buffer_map, named_map
from parllel.errors import add_note
from parllel.types import Tree

# Fields of agent_info with a row T after the batch, for bootstrapping.
PADDED_INFO = ("value",)


def agent_examples(handler: Handler, observation: Tree) -> tuple[Tree, Tree]:
    """Run the agent once, in eval mode, and return `(action_example, agent_info_fields)`.

    observation: numpy tree of one cell, without T and B, in the dtypes of the buffer.
    The action is a numpy tree of one cell. The agent info is a tree of `Field`, because `value`
    needs padding, or None. The agent's sampling state is not changed.
    """
    column = slice(0, 1)
    # A copy: `convert` shares memory, and the agent must not change the example.
    converted = named_map(lambda leaf: handler.convert(np.array(leaf)[np.newaxis]), observation)
    # Eval mode keeps the random and recurrent state of sampling unchanged.
    handler.agent.eval_mode()
    try:
        inputs = handler.agent_inputs(converted, None, column)
        answer = handler.agent.step(**inputs, env_indices=column)
        action, agent_info = _action_and_info(answer, type(handler.agent).__name__)
    except Exception as error:
        leaves = buffer_leaves(buffer_map(np.asarray, observation), "observation")
        seen = ", ".join(f"{path} {cell.dtype} {cell.shape}" for path, cell in leaves)
        names = f"in {type(handler.agent).__name__}, given an example of one cell by"
        add_note(error, f"{names} {type(handler).__name__}: {seen}")
        raise
    finally:
        handler.restore_mode()
    return _cells(handler, action, "action"), _info_fields(handler, agent_info)


def _action_and_info(answer: Any, name: str) -> tuple[Tree, Tree]:
    """Return an agent's output if it is a pair. `name` is that of its class."""
    # A bare action would be unpacked as if it were the pair: an array along its first dimension, a
    # NamedTuple of two fields into these.
    pair = isinstance(answer, (tuple, list)) and not isinstance(answer, NamedTuple)
    if pair and len(answer) == 2:
        return answer[0], answer[1]
    got = "None" if answer is None else f"a value of type {type(answer).__name__}"
    if pair:
        got = f"{len(answer)} values"
    elif hasattr(answer, "shape"):
        got = f"an array of shape {tuple(answer.shape)}"
    raise TypeError(
        f"{name}.step: expected a pair (action, agent_info), got {got}; without an agent_info, return "
        "(action, None)"
    )


def noise_example(handler: Handler) -> Tree:
    """Return a tree of `Field` for the noise of one cell, or None if the agent draws none.

    The random state is preserved if the agent's `state` includes it.
    """
    agent = handler.agent
    # Noise is drawn only in sample mode. The state is restored afterwards, so that runs with and without a
    # noise field draw the same noise.
    state = agent.state()
    agent.sample_mode()
    try:
        noise = agent.draw_noise(1, 1)
    finally:
        handler.restore_mode()
        agent.load_state(state)
    cells = buffer_map(lambda leaf: handler.to_numpy(leaf)[0, 0], noise)
    return buffer_map(lambda cell: Field(cell, dtype=cell.dtype), cells)


def initial_state_example(handler: Handler) -> Tree:
    """Return a numpy tree of the recurrent state of one environment, or None if there is none."""
    if not handler.agent.recurrent:
        return None
    state = handler.agent.initial_rnn_state(slice(0, 1))
    return buffer_map(lambda leaf: handler.to_numpy(leaf)[0], state)


def _info_fields(handler: Handler, agent_info: Tree) -> Tree:
    cells = _cells(handler, agent_info, "agent_info")
    if not hasattr(cells, "_fields"):
        return buffer_map(Field, cells)
    _check_values(handler, cells)
    return NamedTuple(
        **{
            name: buffer_map(partial(Field, padding=int(name in PADDED_INFO)), getattr(cells, name))
            for name in cells._fields
        }
    )


def _cells(handler: Handler, answer: Tree, what: str) -> Tree:
    """Return one cell, a numpy tree, of the agent's output for one observation.

    Raises:
        ValueError: for a leaf without a leading dimension; `what` is the first part of its path.
    """
    arrays = buffer_map(handler.to_numpy, answer)
    for path, array in buffer_leaves(arrays, what):
        if array.shape[:1] != (1,):
            raise ValueError(
                f"{_answering(handler)}: {path}: expected shape [N, ...], an entry for each of N=1 "
                f"observations, got {array.shape}"
            )
    return buffer_map(lambda array: array[0], arrays)


def _check_values(handler: Handler, cells: Tree) -> None:
    # Checked here, near the model; otherwise a transform of the first batch would fail.
    for path, cell in buffer_leaves(getattr(cells, "value", None), "agent_info.value"):
        if cell.ndim and cell.size == 1:
            shape = ", ".join(["N", *map(str, cell.shape)])
            raise ValueError(
                f"{_answering(handler)}: {path}: expected shape [N], got [{shape}]; squeeze the last "
                "dimension of the value head"
            )


def _answering(handler: Handler) -> str:
    """Return the class name of the agent's model, or of the agent if it has none."""
    return type(getattr(handler.agent, "model", handler.agent)).__name__
