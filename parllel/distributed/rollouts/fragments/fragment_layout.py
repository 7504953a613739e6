"""Which leaves a fragment has, so that its memory can be a flat list while it is filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import parts_of
from parllel.types import Tree

OBSERVATION = "env.observation"
# All that steps bring; what fragments count themselves is added to it.
FIELDS = (
    OBSERVATION,
    "env.reward",
    "env.terminated",
    "env.truncated",
    "env.env_info",
    "agent.action",
    "agent.agent_info",
    "agent.observation",
)
# The place of a leaf in the list, the places below a node, or None where nothing is stored.
_Places: TypeAlias = "int | dict[str, _Places] | None"


class FragmentLayout:
    """Names, shapes and types of all leaves, taken from an example of each field.

    Walking through trees costs more than copying the few numbers of a step, so it is done once for each
    source, and not for each fragment.

    Args:
        fields: examples by the names of `FIELDS`; None for what is not stored.
        cell: number of dimensions of the examples that are no part of a cell: 0 for those of a step, 2 for
            [T, B, ...].
        length: most rows of a fragment.

    Attributes:
        length: the argument of that name.
        paths: of the leaves; those of the observation come first.
        cells: shape and dtype of a cell of each leaf.
        n_observation: how many leaves an observation has.
        memory: shape and dtype of each leaf of a fragment, with one row more for observations.
    """

    def __init__(self, fields: Mapping[str, Tree], cell: int, length: int) -> None:
        self.length = length
        self.paths: list[str] = []
        self.cells: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        self._places = {name: self._place(fields[name], name, cell) for name in FIELDS}
        observed = [path for path in self.paths if path.split(".")[:2] == OBSERVATION.split(".")]
        self.n_observation = len(observed)
        self.memory = [
            ((length + (i < self.n_observation), *shape), dtype)
            for i, (shape, dtype) in enumerate(self.cells)
        ]
        # By the names that they have in the nodes of a fragment.
        self._env, self._agent = (
            {
                name.removeprefix(node): self._places[name]
                for name in FIELDS
                if name.startswith(node)
            }
            for node in ("env.", "agent.")
        )

    def _place(self, example: Tree, path: str, cell: int) -> _Places:
        if example is None:
            return None
        parts = parts_of(example)
        if parts is not None:
            return {name: self._place(part, f"{path}.{name}", cell) for name, part in parts.items()}
        array = np.asarray(example)
        # As everywhere else numbers of Python, which have no type of their own, are stored as float32.
        dtype = np.dtype(np.float32) if type(example) is float else array.dtype
        self.paths.append(path)
        self.cells.append((array.shape[cell:], dtype))
        return len(self.paths) - 1

    def leaves_of(self, fields: Mapping[str, Tree]) -> list[Any]:
        """Return the leaves of fields with the same names, in the order of `paths`.

        Raises:
            ValueError: if other nodes or leaves are there than in the examples.
        """
        leaves: list[Any] = []
        for name, places in self._places.items():
            _collect(places, fields[name], name, leaves)
        return leaves

    def observation_of(self, observation: Tree) -> list[Any]:
        """Return the leaves of one more observation; see `leaves_of`."""
        leaves: list[Any] = []
        _collect(self._places[OBSERVATION], observation, OBSERVATION, leaves)
        return leaves

    def check(self, i: int, value: Any) -> NDArray[Any]:
        """Return the value of leaf `i` in one step as an array.

        Raises:
            ValueError: if it has another shape than the example, or a type that would lose something.
        """
        array = np.asarray(value)
        shape, dtype = self.cells[i]
        # numpy would broadcast a wrong shape over the row, and cut fractions off for an integer.
        fits = array.dtype == dtype or np.can_cast(array.dtype, dtype, "same_kind")
        if array.shape != shape or not fits:
            raise ValueError(
                f"{self.paths[i]}: expected {dtype} {list(shape)} as in the first step, got "
                f"{array.dtype} {list(array.shape)}"
            )
        return array

    def observation(self, leaves: Sequence[NDArray[Any]]) -> Tree:
        """Return an observation from a list that begins with its leaves."""
        return _tree(self._places[OBSERVATION], leaves)

    def env(self, leaves: Sequence[NDArray[Any]]) -> dict[str, Tree]:
        """Return what steps bring to `env`, from a list of all leaves."""
        return {name: _tree(places, leaves) for name, places in self._env.items()}

    def agent(self, leaves: Sequence[NDArray[Any]]) -> dict[str, Tree]:
        """Return what steps bring to `agent`, from a list of all leaves."""
        return {name: _tree(places, leaves) for name, places in self._agent.items()}


def _collect(places: _Places, tree: Tree, path: str, leaves: list[Any]) -> None:
    if isinstance(places, int):
        leaves.append(tree)
        return
    parts = None if tree is None else parts_of(tree)
    if places is None:
        if tree is None:
            return
    elif parts is not None and parts.keys() == places.keys():
        for name, below in places.items():
            _collect(below, parts[name], f"{path}.{name}", leaves)
        return
    expected = "nothing" if places is None else f"the fields {sorted(places)}"
    got = type(tree).__name__ if parts is None else f"the fields {sorted(parts)}"
    raise ValueError(f"{path}: expected {expected} as in the first step, got {got}")


def _tree(places: _Places, leaves: Sequence[NDArray[Any]]) -> Tree:
    if isinstance(places, int):
        return leaves[places]
    if places is None:
        return None
    return NamedTuple(**{name: _tree(below, leaves) for name, below in places.items()})
