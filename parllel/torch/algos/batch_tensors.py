"""Batches of a replay as tensors."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.replays import ReplayBatch

BatchT = TypeVar("BatchT", bound=ReplayBatch)
_ALIGNMENT = 64  # bytes


class BatchTensors:
    """Converts the batches of a replay to tensors, which are made only once.

    A replay draws into the same arrays each time. On the CPU the tensors share their memory. For another
    device, all arrays are copied together: into one pinned buffer, and from there to the device in one
    transfer that nobody waits for.

    Args:
        device: device of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._fields: dict[str, Any] = {}
        self._tensors: Any = None
        self._transfer: _Transfer | None = None

    def of(self, batch: BatchT) -> BatchT:
        """Return a copy of a batch whose fields are tensors. Valid until the replay's next `sample`.

        Fields that are None stay None.
        """
        fields = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}
        if len(fields) != len(self._fields) or any(
            self._fields.get(name) is not field for name, field in fields.items()
        ):
            self._make(batch, fields)
        if self._transfer is not None:
            self._transfer.run()
        tensors: BatchT = self._tensors
        return tensors

    def _make(self, batch: ReplayBatch, fields: dict[str, Any]) -> None:
        self._fields = fields
        # Numbers, such as the length of a part, stay numbers.
        trees = {
            name: tree
            for name, tree in fields.items()
            if name != "replay" and not isinstance(tree, int)
        }
        self._tensors = copy.copy(batch)
        self._transfer = None
        convert: Any = torch.from_numpy
        if self._device.type != "cpu":
            arrays = [array for _, array in buffer_leaves(list(trees.values()))]
            self._transfer = _Transfer(arrays, self._device)
            convert = self._transfer.view_of
        for name, tree in trees.items():
            setattr(self._tensors, name, buffer_map(convert, tree))


class _Transfer:
    """One copy of several arrays to a device."""

    def __init__(self, arrays: list[NDArray[Any]], device: torch.device) -> None:
        ends, size = [], 0
        for array in arrays:
            ends.append(size)
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._is_cuda = device.type == "cuda"
        self._staging = torch.empty(size, dtype=torch.uint8, pin_memory=self._is_cuda)
        self._there = torch.empty(size, dtype=torch.uint8, device=device)
        self._copies, self._views = [], {}
        for start, array in zip(ends, arrays, strict=True):
            source = torch.from_numpy(array)

            def part(whole: Tensor, start: int = start, like: Tensor = source) -> Tensor:
                return whole[start : start + like.nbytes].view(like.dtype).view(like.shape)

            self._copies.append((part(self._staging).numpy(), array))
            self._views[id(array)] = part(self._there)
        event: Any = torch.cuda.Event
        self._done: Any = event() if self._is_cuda else None

    def view_of(self, array: NDArray[Any]) -> Tensor:
        """Return the tensor on the device that becomes a copy of an array."""
        return self._views[id(array)]

    def run(self) -> None:
        """Copy all arrays."""
        if self._done is not None:
            # The last transfer may still read the pinned buffer.
            self._done.synchronize()
        for staged, array in self._copies:
            np.copyto(staged, array)
        self._there.copy_(self._staging, non_blocking=True)
        if self._done is not None:
            self._done.record()
