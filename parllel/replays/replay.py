"""Interface of replays: what a runner adds batches to, and an algorithm draws from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from parllel.buffers.samples import Samples
from parllel.types import State, Tree


@dataclass(eq=False, kw_only=True)
class ReplayBatch:
    """Base class of what a replay draws.

    The arrays belong to the replay, which writes into the same memory each time. They are valid
    until its next `sample`; copy what must outlive that.

    Attributes:
        replay: the replay that drew the batch.
    """

    replay: Replay

    def update_priorities(self, errors: NDArray[Any]) -> None:
        """Pass new errors of this batch to the replay. See `Replay.update_priorities`."""
        self.replay.update_priorities(errors)


@dataclass(eq=False, kw_only=True)
class Transitions(ReplayBatch):
    """Transitions of up to `n_step` steps, drawn by `UniformReplay` and `PrioritizedReplay`.

    The target of a value is `reward + discount * value(next_observation)`, which needs no case for the end
    of an episode (n-step returns: Sutton and Barto 2018, eq. 7.1).

    Attributes:
        observation: tree, leaves [n, ...]; what the agent saw.
        action: tree, leaves [n, ...].
        reward: [n] float32; the sum of `discount**i * reward[t + i]` over i < k, where k is `n_step`, or the
            number of steps to the end of the episode if that is smaller.
        next_observation: tree, leaves [n, ...]; the observation k steps later. Where a time limit cut
            the episode, this is its true last observation and not the first one after the reset.
        discount: [n] float32; `discount**k`, and 0 where the episode terminated.
        weight: [n] float32; importance weights, 1 in a uniform replay.
    """

    observation: Tree
    action: Tree
    reward: NDArray[Any]
    next_observation: Tree
    discount: NDArray[Any]
    weight: NDArray[Any]


class Replay(ABC):
    """Keeps the most recent batches of a sampler, and draws from them.

    The memory is a buffer of several batches, made by `allocate_samples(n_batches=...)`. A sampler in this
    process writes into it directly, so `add` copies nothing:

        samples = allocate_samples(..., transforms=[FinalObservations()], n_batches=1000)
        replay = UniformReplay(samples, ...)
        sampler = BasicSampler(..., samples, batch_transforms=[FinalObservations()])

    Attributes:
        samples: the memory.
        batch_size: number of items that `sample` draws.
        reads: paths of the fields of `samples` that the replay stores or reads.
        batch_class: class of what `sample` returns.
    """

    samples: Samples
    batch_size: int
    reads: Sequence[str]
    batch_class: ClassVar[type[ReplayBatch]]

    @property
    @abstractmethod
    def n_stored(self) -> int:
        """Number of items that can be drawn now."""

    @abstractmethod
    def add(self, samples: Samples, *, source: Hashable = None) -> None:
        """Add the batch that was just collected; call it once after each batch.

        samples: the replay's own buffer, in which the sampler has filled the next batch: nothing is copied.
            Or a batch [T, B] in other memory with the same fields, which is copied.
        source: who collected the batch. A batch continues the episodes of the batch before it only if
            both have the same source. Give the name of the worker if several of them fill the replay.

        Raises:
            ValueError: if the fields or shapes of a batch in other memory differ from those of `samples`.
            WrongStateError: if this batch was added already, or the one before it was not.
        """

    @abstractmethod
    def sample(self) -> ReplayBatch:
        """Draw `batch_size` items into the same arrays as before.

        Raises:
            WrongStateError: if nothing can be drawn yet, or the sampler has begun a batch that was not added.
        """

    def update_priorities(self, errors: NDArray[Any]) -> None:
        """Set the priorities of the batch that was drawn last.

        errors: [n], absolute temporal-difference errors.

        Replays without priorities ignore them, so an algorithm can call this with every replay.
        """

    @abstractmethod
    def state(self) -> State:
        """Return the stored rows, as views of the memory, and everything that decides what is drawn next."""

    @abstractmethod
    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`, directly into the memory of this replay.

        Raises:
            ValueError: if it belongs to a replay of another size or with other fields.
        """
