"""Batches of a trainer, filled with fragments that workers make elsewhere.

    workers    -- add --> source (a ReplayBuffer) -- fetch, B fragments --> collect_batch
               <-------------- weights, version ------------------------   publish
                          source  <-- version ---------------------------   publish, after all workers

The workers act with the weights that they were given last, while the trainer learns. Each step says by which
version of the weights it was chosen, so no order between the two is needed: what is too old is dropped by the
source, and what is not is as old as `stats["staleness"]` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any

from parllel.agents.agent import Agent
from parllel.agents.handler import Handler
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.distributed.rollouts.arguments import check_kind, check_timeout
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragments.batch_filler import BatchFiller
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.distributed.rollouts.published_parts import PublishedParts
from parllel.distributed.rollouts.rollouts import Rollouts
from parllel.errors import ClosedError, WorkerTimeoutError
from parllel.samplers.part_checks import check_handler, check_samples, check_transforms
from parllel.samplers.publishing_sampler import PublishingSampler
from parllel.transforms.transform import BatchTransform, StepTransform, Transform, transform_batch
from parllel.types import BatchSpec, State

# Longest wait without a look at the workers.
_LOOK_S = 1.0


class FragmentSampler(PublishingSampler):
    """Fill each batch with B fragments of at most T steps, and hand out the weights that make the next.

    Values of the observations after fragments and at time limits are those of the handler's agent, with its
    present weights. All else was computed by the workers, `agent.agent_info.value` included: the older it is,
    the more there is to correct (`EstimateVtrace`).

    A short fragment, as an environment that crashed leaves it, is padded: `env.valid` is false there, and its
    last step is marked as truncated unless its episode ended with it, as nothing follows. With an agent that
    has a memory each fragment ends with its episode.

    Fields of the samples beside the usual ones: `env.valid`, `env.first`, `env.aborted`, and `env.version`,
    of the weights that chose each action. They are added to `samples` where they are missing.

    Args:
        batch_spec: T, the `fragment_length` of the workers, and B, the fragments in a batch.
        source: where they are fetched from; it is not closed by `close`.
        handler: of the agent that is trained.
        samples: the buffer to fill, [T, B]; `allocate_samples` makes it for any cages with the workers'
            spaces, such as those of evaluation.
        step_transforms: as the workers have them. Their statistics, if they have any, are updated here
            alone, from what the workers observed, and published with the weights.
        batch_transforms: applied in order to the finished batch.
        workers: what makes the fragments. They are given weights, with an entry "step_transforms" for
            statistics, where there are any; what ends one of them ends the wait for a batch. None: `source`
            is filled by others, which do not get weights.
        statistics: where episodes that end in the workers are reported; None: the batches have none.
        timeout_s: how long a batch may take.

    Attributes:
        samples: the buffer, with all fields.

    Raises:
        ValueError: if agent, buffer, transforms and batch spec do not fit; if `agent.final_value` is
            asked for with an agent that has a memory, whose state at the end is not known; if the time-out
            is not positive.
        TypeError: if handler, buffer or a transform is something else.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        source: ReplayBufferInterface,
        handler: Handler,
        samples: Samples,
        step_transforms: Sequence[StepTransform] = (),
        batch_transforms: Sequence[BatchTransform] = (),
        *,
        workers: Rollouts | None = None,
        statistics: EpisodeStatistics | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        check_samples(samples, batch_spec)
        check_handler(handler)
        check_kind("source", source, ReplayBufferInterface)
        check_kind("workers", workers, Rollouts, optional=True)
        check_transforms(step_transforms, batch_transforms)
        self.batch_spec = batch_spec
        self.handler = handler
        self.step_transforms = list(step_transforms)
        self.batch_transforms = list(batch_transforms)
        self._filler = BatchFiller(
            batch_spec, handler, samples, self.step_transforms, self.transforms
        )
        self.samples = self._filler.samples
        self._source = source
        self._workers = workers
        self._statistics = statistics
        self._timeout_s = check_timeout("FragmentSampler: timeout_s", timeout_s)
        try:
            # Afterwards, as some transforms have their state only then.
            self._parts = PublishedParts(handler, self.step_transforms)
        except NotImplementedError as error:
            raise ValueError(f"handler: agent: {error}") from None
        self._version = self._version_of_batch = self._batches = 0
        self._about_batch: dict[str, Any] = {
            "staleness": 0,
            "version_of_batch": 0,
            "waited_s": 0.0,
            "dropped_fragments": 0,
        }
        self._closed = False

    # ------------------------------------------------------------------ batches

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Wait for B fragments, copy them to the buffer, and return it with the episodes reported meanwhile.

        The samples stay as they are until the next call.

        Raises:
            WorkerTimeoutError: if there are too few fragments in time; none is lost by that.
            ClosedError: if the sampler or the source is closed.
            ValueError: if fragments do not fit the samples.
        """
        self._check_open()
        began = perf_counter()
        fragments = self._fetch()
        # Before the filling, which is the trainer's own work: this is what more workers would shorten.
        waited_s = perf_counter() - began
        self._filler.fill(fragments)
        transform_batch(self.batch_transforms, self.samples)
        self._batches += 1
        self._version_of_batch = min(fragment.oldest_version for fragment in fragments)
        self._about_batch = {
            "staleness": self._version - self._version_of_batch,
            "version_of_batch": self._version_of_batch,
            "waited_s": waited_s,
            "dropped_fragments": self._source.counts().get("stale", 0),
        }
        # Episodes of all that was played meanwhile, not of this batch alone: fragments do not hold them.
        return self.samples, [] if self._statistics is None else self._statistics.drain()

    def _fetch(self) -> list[SampleFragment]:
        B, deadline = self.batch_spec.B, monotonic() + self._timeout_s
        stale_before = self._about_batch["dropped_fragments"]
        while True:
            # Workers that have failed will never fill a batch.
            if self._workers is not None:
                self._workers.check()
            left_s = max(deadline - monotonic(), 0.0)
            # With the version, as a source elsewhere may not have heard of it when it is asked.
            fragments = self._source.borrow(B, min(left_s, _LOOK_S), self._version)
            if fragments:
                if len(fragments) != B:
                    raise ValueError(
                        f"{type(self._source).__name__}.fetch: expected {B} fragments or none, got "
                        f"{len(fragments)}"
                    )
                return fragments
            if left_s == 0:
                raise WorkerTimeoutError(self._what_is_missing(stale_before))

    def _what_is_missing(self, stale_before: int) -> str:
        counts = self._source.counts()
        stale = counts.get("stale", 0) - stale_before
        hint = (
            f"{stale} came and were too old: publish less often, or raise the source's max_staleness"
            if stale
            else "look whether the workers run and are given weights, or raise timeout_s"
        )
        so_far = ", ".join(f"{n} {name}" for name, n in counts.items())
        return (
            f"FragmentSampler: batch {self._batches + 1}: expected {self.batch_spec.B} fragments within "
            f"{self._timeout_s:g} s, got {self._source.prepared()}{f' (in all {so_far})' if so_far else ''}; "
            f"{hint}"
        )

    # ------------------------------------------------------------------ weights

    def publish(self) -> int:
        """Give the workers the agent's weights and the statistics of now as a new version, and return it.

        Raises:
            ClosedError: if the sampler is closed. What a worker raises passes through.
        """
        self._check_open()
        weights = self._parts.state()
        # Counted before they are handed out: if a worker fails, others may have this version already.
        self._version += 1
        if self._workers is not None:
            self._workers.load_weights(weights, self._version)
        # After the workers, which could not make anything newer before.
        self._source.new_version(self._version)
        return self._version

    @property
    def version(self) -> int:
        """Version of the weights that were published last; 0 is what the workers began with."""
        return self._version

    @property
    def version_of_batch(self) -> int:
        """Version of the weights that chose the oldest step of the last batch."""
        return self._version_of_batch

    @property
    def agent(self) -> Agent:
        """The agent that is trained, whose weights are published."""
        return self.handler.agent

    # ------------------------------------------------------------------ statistics and state

    @property
    def transforms(self) -> list[Transform]:
        """All transforms, in order."""
        return [*self.step_transforms, *self.batch_transforms]

    @property
    def stats(self) -> dict[str, Any]:
        """Return the `stats` of transforms, as `Class/name`, of tasks, of workers, and of the last batch:

        `staleness`, versions that were published since that of its oldest step; `version_of_batch`;
        `waited_s`, how long it was waited for; `dropped_fragments`, how many were too old, in all.
        """
        of_transforms = {
            f"{type(transform).__name__}/{name}": value
            for transform in self.transforms
            for name, value in transform.stats.items()
        }
        tasks = {} if self._statistics is None else self._statistics.stats
        workers = {} if self._workers is None else self._workers.stats
        return {**of_transforms, **tasks, **workers, **self._about_batch}

    def overview(self) -> str:
        """Return some lines about the last batch and the workers, for the terminal."""
        of_workers = "" if self._workers is None else self._workers.overview()
        if not of_workers:
            return ""
        about = self._about_batch
        return (
            f"batch {self._batches}: version {about['version_of_batch']} of {self._version}, waited "
            f"{about['waited_s']:.2f} s; {about['dropped_fragments']:,} fragments too old in the buffer\n"
            f"{of_workers}"
        )

    def state(self, *, environments: bool = True) -> State:
        """Return the version of the weights, and the states of transforms and statistics.

        The environments are the workers': a run that goes on begins new episodes.
        """
        return {
            "version": self._version,
            "batches": self._batches,
            "transforms": [transform.state() for transform in self.transforms],
            "transform_classes": self._transform_classes(),
            "statistics": None if self._statistics is None else self._statistics.state(),
        }

    def load_state(self, state: State) -> None:
        """Take back what `state` returned. Versions continue from those of the run that was saved.

        Raises:
            ValueError: if it is that of other transforms or statistics, or of another sampler.
        """
        classes, came = self._transform_classes(), state.get("transform_classes")
        if came != classes:
            raise ValueError(f"transforms: expected the states of {classes}, got those of {came}")
        if "version" not in state:
            raise ValueError(
                "expected the state of a FragmentSampler, which has a version, got none"
            )
        # Older checkpoints have none: counters begin at zero then.
        statistics = state.get("statistics")
        if self._statistics is not None and statistics is not None:
            self._statistics.load_state(statistics)
        for transform, one in zip(self.transforms, state["transforms"], strict=True):
            transform.load_state(one)
        self._batches = int(state["batches"])
        # Versions never go back: workers that are still there may have a higher one.
        self._version = max(self._version, int(state["version"]))
        self._filler.forget_columns()

    def _transform_classes(self) -> list[str]:
        return [type(transform).__name__ for transform in self.transforms]

    # ------------------------------------------------------------------ the end

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("FragmentSampler: the sampler is closed")

    def close(self) -> None:
        """Close the handler; may be called twice. The source and the workers are not closed."""
        self._closed = True
        self.handler.close()
