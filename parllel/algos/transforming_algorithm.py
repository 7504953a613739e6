"""Batch transforms on the learner's side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parllel.algos.algorithm import Algorithm, fields_read
from parllel.algos.learner_group import LearnerGroup
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.transforms.field_allocation import add_transform_fields
from parllel.transforms.field_checks import check_outputs_are_read
from parllel.transforms.transform import BatchTransform, transform_batch
from parllel.types import BatchSpec, State


class TransformingAlgorithm(Algorithm):
    """Applies batch transforms to each batch before another algorithm learns from it.

    A sampler's transforms run in the process that samples, with the weights used for sampling.
    These run in the learning process, for computations that need the newest weights::

        transforms = [EvaluatePolicy(agent), EstimateVtrace(0.99), NormalizeAdvantage()]
        algorithm = TransformingAlgorithm(PPO(agent, ...), transforms)

    The fields that these transforms write are allocated in local memory with the first batch. The
    sampler does not know them, and callbacks receive batches without them.

    Args:
        algorithm: algorithm that learns from the batches, including the fields of the transforms.
        transforms: batch transforms, applied in order.

    Diagnostics are those of the algorithm, and the `stats` of the transforms as `Class/name`.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if a transform evaluates an agent other than the one being trained. With the
            first batch, or earlier by a runner, also if a transform reads a missing field or writes
            an existing one.
    """

    def __init__(self, algorithm: Algorithm, transforms: Sequence[BatchTransform]) -> None:
        if not isinstance(algorithm, Algorithm):
            raise TypeError(
                f"TransformingAlgorithm: algorithm: expected an Algorithm, got {algorithm!r}"
            )
        if not isinstance(transforms, Sequence):
            raise TypeError(
                f"TransformingAlgorithm: transforms: expected a list of BatchTransforms, got {transforms!r}"
            )
        for transform in transforms:
            if not isinstance(transform, BatchTransform):
                hint = "; call it" if isinstance(transform, type) else ""
                raise TypeError(
                    f"TransformingAlgorithm: transforms: expected BatchTransforms, got {transform!r}{hint}"
                )
        trained = getattr(algorithm, "agent", None)
        for transform in transforms:
            # Another agent's weights would never change, so its outputs are not those of the learner.
            learner = getattr(transform, "learner", None)
            if None not in (learner, trained) and learner is not trained:
                raise ValueError(
                    f"{type(transform).__name__}: agent: expected the {type(trained).__name__} that "
                    f"{type(algorithm).__name__} trains, got another {type(learner).__name__}; give "
                    "both the same"
                )
        self.algorithm = algorithm
        self.transforms = list(transforms)
        self._source: Samples | None = None
        self._samples: Any = None

    @property
    def agent(self) -> Any:
        """The trained agent of the algorithm, if it has one."""
        return self.algorithm.agent  # type: ignore[attr-defined]

    @property
    def on_policy(self) -> bool:  # type: ignore[override]
        """Whether the algorithm needs samples of its own agent."""
        return self.algorithm.on_policy

    @property
    def update_method(self) -> str | None:  # type: ignore[override]
        """How the algorithm computes updates."""
        return self.algorithm.update_method

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the paths that transforms and algorithm read, except fields that the transforms write.

        Raises:
            ValueError: if a transform reads a missing field, writes an existing one, or writes one that
                nothing reads.
        """
        extended = self._extended(samples)
        reads = fields_read(self.algorithm, extended)
        if reads is None:
            return None
        check_outputs_are_read(extended, self.transforms, {type(self.algorithm).__name__: reads})
        # A transform without `reads` may read any field of the sampler's transforms.
        if any(one.reads is None for one in self.transforms):
            return None
        reads = [*reads, *(path for one in self.transforms for path in one.reads or ())]
        before, after = (
            [f"{at}." for at, _ in buffer_leaves(tree)] for tree in (samples, extended)
        )
        # Paths in neither tree are kept too, so that they are reported as missing.
        made = [at for at in after if at not in before]
        return [path for path in reads if not any(at.startswith(f"{path}.") for at in made)]

    def check_batch_spec(self, batch_spec: BatchSpec) -> None:
        """Check the batch size with the algorithm."""
        self.algorithm.check_batch_spec(batch_spec)

    def join(self, learners: LearnerGroup, batch_spec: BatchSpec) -> None:
        """Learn together with other processes, with statistics of the batches of all.

        Raises:
            TypeError: if the algorithm or a transform does not support it.
        """
        self.algorithm.join(learners, batch_spec)
        for transform in self.transforms:
            transform.share_statistics(learners.gather)

    def prepare(self) -> None:
        """Prepare the algorithm."""
        self.algorithm.prepare()

    def optimize_agent(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Transform the batch, let the algorithm learn from it, and return diagnostics."""
        self._extended(samples)
        for transform in self.transforms:
            # For each batch, because arrays with several sides have switched since the last one.
            transform.bind(self._samples)
            transform_batch([transform], self._samples)
        # Stats are read afterwards; transforms keep those of the last batch.
        diagnostics = self.algorithm.optimize_agent(elapsed_steps, self._samples)
        stats = {
            f"{type(transform).__name__}/{name}": value
            for transform in self.transforms
            for name, value in transform.stats.items()
        }
        return {**diagnostics, **stats}

    def _extended(self, samples: Samples) -> Samples:
        """Return the samples with the fields of the transforms, allocated once per samples object."""
        # Samplers return the same object for each batch, unless the number of rows changes.
        if samples is not self._source:
            done = samples.env.done
            # Local memory, because no other process reads these fields.
            self._samples = add_transform_fields(
                samples, self.transforms, BatchSpec(*done.shape[:2]), storage="local"
            )
            self._source = samples
        extended: Samples = self._samples
        return extended

    def state(self) -> State:
        """Return the states of the algorithm and of the transforms."""
        return {
            "algorithm": self.algorithm.state(),
            "transforms": [transform.state() for transform in self.transforms],
            "transform_classes": self._classes(),
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: for the state of other transforms, or of an algorithm without transforms.
        """
        # Compared by class and order, because a list of states could be loaded into any transforms.
        came = state.get("transform_classes")
        if came != self._classes():
            raise ValueError(
                f"TransformingAlgorithm: expected the states of {self._classes()}, got those of {came}"
            )
        self.algorithm.load_state(state["algorithm"])
        for transform, one in zip(self.transforms, state["transforms"], strict=True):
            transform.load_state(one)

    def _classes(self) -> list[str]:
        return [type(transform).__name__ for transform in self.transforms]
