"""The interface of algorithms that learn from batches drawn from a replay."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from parllel.algos.algorithm import Algorithm
from parllel.replays.replay import ReplayBatch, Transitions


class OffPolicyAlgorithm(Algorithm):
    """Learning algorithm that improves an agent with batches drawn from a replay.

    `OffPolicyRunner` calls `before_sampling` before each batch of the sampler and `optimize_agent` once per
    gradient step. `reads` names fields that the sampler's batches must have besides those that the replay
    reads.

    Attributes:
        batch_class: what the replay must draw: Transitions, or another subclass of ReplayBatch.
    """

    on_policy = False
    batch_class: ClassVar[type[ReplayBatch]] = Transitions

    def before_sampling(self, elapsed_steps: int) -> None:
        """Set how the agent explores in the next batch, for example its epsilon.

        elapsed_steps: environment steps taken since the start of the run.
        """

    @abstractmethod
    def optimize_agent(self, elapsed_steps: int, samples: Any) -> Mapping[str, Any]:
        """Take one gradient step and return diagnostics, keyed by name.

        elapsed_steps: environment steps taken since the start of the run.
        samples: batch drawn from the replay, which overwrites it with the next one.

        A diagnostic is anything that `float` accepts, such as a 0-d tensor, or an array. It must not change
        later, because runners convert diagnostics only when they are needed. Runners log the mean over the
        gradient steps since the last row that returned a number of this name, and the last array.
        """
