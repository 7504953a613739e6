"""Large fragments on Ray: labels pass through the buffer's actor, content through the object store.

worker        OfferedFragment  --- add ---------------------->  BufferActor
              content          <-- RolloutWorkerWrapper.contents --  as soon as there is room
object store  content, owned by the actor, which called for it: it outlives the worker
BufferActor   HeldFragment: a view of the content, or a copy if too much is in the store
trainer       ClaimedFragment  --- copied from the store into the trainer's memory, or only borrowed
"""

# Ray has no public way to give an object to another owner, but a return value belongs to the caller.
# So the actor calls the worker for the content, instead of the worker sending it.

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parllel.distributed.rollouts.fragments.sample_fragment import FragmentLabel, SampleFragment

# Smaller arrays are pickled with the rest, because each separate one costs some microseconds per process.
SMALL_ARRAY_BYTES = 4096


class FragmentContent(NamedTuple):
    """A pickled fragment with its large arrays beside it, which Ray stores with a single copy.

    Attributes:
        header: the pickled fragment without the arrays.
        arrays: the bytes of the arrays, [nbytes] uint8, in the order of the pickle.
    """

    header: bytes
    arrays: list[NDArray[np.uint8]]

    @classmethod
    def of(cls, fragment: SampleFragment, small_bytes: int) -> FragmentContent:
        """Pickle a fragment. Its large arrays are not copied.

        small_bytes: size below which arrays become part of the header.
        """
        arrays: list[NDArray[np.uint8]] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < small_bytes:
                return True
            arrays.append(np.asarray(raw, np.uint8))
            return False

        header = pickle.dumps(fragment, protocol=5, buffer_callback=is_small)
        return cls(header, arrays)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return len(self.header) + sum(array.nbytes for array in self.arrays)

    def owned(self) -> FragmentContent:
        """Copy the arrays that are views of the object store, which are read-only."""
        arrays = [array if array.flags.writeable else array.copy() for array in self.arrays]
        return FragmentContent(self.header, arrays)

    def unpack(self) -> SampleFragment:
        """Unpickle the fragment. Its large arrays are views of `arrays`."""
        # Safe only because workers belong to the run: Ray unpickles whatever they send, too.
        fragment: SampleFragment = pickle.loads(self.header, buffers=self.arrays)
        return fragment


@dataclass(frozen=True)
class OfferedFragment(FragmentLabel):
    """A fragment whose content the worker still holds.

    Attributes:
        nbytes: size of the content.
    """

    nbytes: int


# Both compared and hashed by identity, because `==` of arrays is an array.
@dataclass(frozen=True, eq=False)
class HeldGroup:
    """The contents of several fragments in one object of the object store.

    Attributes:
        reference: the reference to the object, a list of FragmentContent.
        nbytes: size of all contents.
    """

    reference: Any
    nbytes: int


@dataclass(frozen=True, eq=False)
class HeldFragment(FragmentLabel):
    """A fragment in the buffer's actor.

    Attributes:
        content: the content. If there is a group, the arrays are views of the object store, and
            keep it there, even if the node on which it was produced is lost.
        group: the group that contains it; None if the arrays own their memory.
        at: its place in the group.
    """

    content: FragmentContent = field(repr=False)
    group: HeldGroup | None = field(repr=False)
    at: int


@dataclass(frozen=True)
class ClaimedFragment(FragmentLabel):
    """A fragment that was fetched, and whose content is still in the actor or the object store.

    Attributes:
        number: identifies the fragment for `BufferActor.contents` and `BufferActor.release`.
        nbytes: size of the content.
        reference: the reference to the group that contains it, in a tuple, because Ray would resolve a
            reference at top level; empty if the actor must be asked for the content.
        at: its place in the group.
    """

    number: int
    nbytes: int
    reference: tuple[Any, ...] = field(repr=False)
    at: int
