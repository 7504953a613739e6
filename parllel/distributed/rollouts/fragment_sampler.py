"""The trainer's batches, filled with fragments that workers produce.

    workers    -- add --> source (a ReplayBuffer) -- fetch, B fragments --> collect_batch
               <-------------- weights, version ------------------------   publish
                          source  <-- version ---------------------------   publish, after all workers

The workers act with the latest weights they have, while the trainer learns. Each step carries the version of
the weights that chose its action, so the two need not be synchronized: the source drops fragments that are
too old, and `stats["staleness"]` is the age of the others.
"""

# The trainer's thread calls everything here. Workers, in threads or processes, reach it only
# through the source, the statistics, and the errors that `Rollouts.check` raises.

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

# Longest wait without a check of the workers.
# It bounds how long the error of a worker stays unnoticed.
_LOOK_S = 1.0


class FragmentSampler(PublishingSampler):
    """Fills each batch with B fragments of at most T steps, and publishes weights to the workers.

    Values after fragments and at time limits are computed here, with the current weights of the handler's
    agent. Everything else was computed by the workers, including `agent.agent_info.value`: the older it is,
    the more needs correcting (`EstimateVtrace`).

    A short fragment, as left by a crashed environment, is padded: `env.valid` is False there, and its last
    step is marked as truncated unless its episode ended with it. With a recurrent agent, every fragment ends
    with its episode.

    Additional fields of the samples are `env.valid`, `env.first`, `env.aborted` and `env.version`, the
    version of the weights that chose each action. They are added to `samples` if missing.

    Args:
        batch_spec: T, the workers' `fragment_length`, and B, the number of fragments in a batch.
        source: storage to fetch fragments from. `close` leaves it open.
        handler: handler of the agent that is trained.
        samples: the buffer [T, B] to fill. Create it with `allocate_samples` for any cages with the
            workers' spaces, such as the evaluation cages.
        step_transforms: the same step transforms as in the workers. Their statistics are updated
            only here, from the workers' observations, and published with the weights.
        batch_transforms: applied in order to the complete batch.
        workers: the workers, which receive weights, with statistics under "step_transforms". An
            error of a worker ends the wait for a batch. None if `source` is filled by other means;
            no weights are then published.
        statistics: collects the episodes of the workers. None to return no episodes.
        timeout_s: time limit in seconds for a batch.

    Attributes:
        samples: the buffer, with all fields.

    Raises:
        ValueError: if agent, buffer, transforms and batch spec do not fit; if the samples have
            `agent.final_value` with a recurrent agent, whose state at the end is unknown; if the time-out is
            not positive.
        TypeError: if handler, buffer or a transform has the wrong type.
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
            # After binding, as some transforms have no state before.
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
        """Wait for B fragments, copy them to the buffer, and return it with the episodes since the last call.

        The samples are valid until the next call.

        Raises:
            WorkerTimeoutError: if too few fragments arrive in time. No fragment is lost.
            ClosedError: if the sampler or the source is closed.
            ValueError: if fragments do not fit the samples.
        """
        self._check_open()
        began = perf_counter()
        fragments = self._fetch()
        # Without the filling, which is the trainer's own work: only waiting would shrink with more workers.
        waited_s = perf_counter() - began
        # The source counts these as fetched: an error from here on loses them, or one use of them.
        self._filler.fill(fragments)
        transform_batch(self.batch_transforms, self.samples)
        self._batches += 1
        self._version_of_batch = min(fragment.oldest_version for fragment in fragments)
        self._about_batch = {
            "staleness": self._version - self._version_of_batch,
            "version_of_batch": self._version_of_batch,
            "waited_s": waited_s,
            # A message if the source is remote. Once per batch, so that `stats` needs none.
            "dropped_fragments": self._source.counts().get("stale", 0),
        }
        # All episodes since the last batch, not only those of its fragments, which do not contain them.
        # Drained last, so that an error above leaves them for the next call.
        return self.samples, [] if self._statistics is None else self._statistics.drain()

    def _fetch(self) -> list[SampleFragment]:
        B, deadline = self.batch_spec.B, monotonic() + self._timeout_s
        stale_before = self._about_batch["dropped_fragments"]
        while True:
            # In every slice, because failed workers will never fill a batch.
            if self._workers is not None:
                self._workers.check()
            # Even with no time left there is a last look, for a batch that is ready.
            left_s = max(deadline - monotonic(), 0.0)
            # With the version, as a remote source may not have received it yet.
            # Borrowed, as the filler only reads them: `fetch` may have to make copies.
            fragments = self._source.borrow(B, min(left_s, _LOOK_S), self._version)
            if fragments:
                # A storage may be a user's, and this error names it.
                if len(fragments) != B:
                    raise ValueError(
                        f"{type(self._source).__name__}.fetch: expected {B} fragments or an empty "
                        f"list, got {len(fragments)}"
                    )
                return fragments
            if left_s == 0:
                # Asks the source for its counts, so a dead source raises its own error here.
                raise WorkerTimeoutError(self._what_is_missing(stale_before))

    def _what_is_missing(self, stale_before: int) -> str:
        # Read before `prepared`, so the two may differ by what arrives in between.
        counts = self._source.counts()
        stale = counts.get("stale", 0) - stale_before
        hint = (
            f"{stale} arrived but were too old: publish less often, or raise the source's max_staleness"
            if stale
            else "check that the workers run and receive weights, or raise timeout_s"
        )
        so_far = ", ".join(f"{n} {name}" for name, n in counts.items())
        return (
            f"FragmentSampler: batch {self._batches + 1}: expected {self.batch_spec.B} fragments within "
            f"{self._timeout_s:g} s, got {self._source.prepared()}{f' (in all {so_far})' if so_far else ''}; "
            f"{hint}"
        )

    # ------------------------------------------------------------------ weights

    def publish(self) -> int:
        """Publish the agent's current weights and statistics as a new version, and return the version.

        Raises:
            ClosedError: if the sampler is closed.
            Exception: the error that ended a worker.
        """
        self._check_open()
        # Not copied here: a Rollouts copies or sends them before `load_weights` returns.
        weights = self._parts.state()
        # Counted before publishing: if one worker fails, others may already have this version.
        self._version += 1
        if self._workers is not None:
            # If it raises, the source keeps the old version, and drops nothing for weights that
            # perhaps no worker has.
            self._workers.load_weights(weights, self._version)
        # After the workers, so that the source does not drop fragments before newer ones are possible.
        self._source.new_version(self._version)
        return self._version

    @property
    def version(self) -> int:
        """Version of the weights published last; 0 before the first."""
        return self._version

    @property
    def version_of_batch(self) -> int:
        """Version of the weights that chose the oldest step of the last batch."""
        return self._version_of_batch

    @property
    def agent(self) -> Agent:
        """The agent that is trained, and whose weights are published."""
        return self.handler.agent

    # ------------------------------------------------------------------ statistics and state

    @property
    def transforms(self) -> list[Transform]:
        """All transforms, in order."""
        return [*self.step_transforms, *self.batch_transforms]

    @property
    def stats(self) -> dict[str, Any]:
        """Log values of transforms (as `Class/name`), tasks, workers and the last batch.

        For the batch: `staleness`, the number of versions published since that of its oldest step;
        `version_of_batch`; `waited_s`, the time spent waiting for it; `dropped_fragments`, the total number
        of fragments that were too old.
        """
        of_transforms = {
            f"{type(transform).__name__}/{name}": value
            for transform in self.transforms
            for name, value in transform.stats.items()
        }
        # Neither waits for a worker: the log must not depend on one that hangs.
        tasks = {} if self._statistics is None else self._statistics.stats
        workers = {} if self._workers is None else self._workers.stats
        return {**of_transforms, **tasks, **workers, **self._about_batch}

    def overview(self) -> str:
        """Return a summary of the last batch and the workers, for the terminal."""
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

        The workers own the environments, so a resumed run begins new episodes.
        """
        return {
            "version": self._version,
            "batches": self._batches,
            "transforms": [transform.state() for transform in self.transforms],
            "transform_classes": self._transform_classes(),
            "statistics": None if self._statistics is None else self._statistics.state(),
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Version numbers continue from it.

        Raises:
            ValueError: if `state` belongs to other transforms or statistics, or to another sampler.
        """
        classes, saved = self._transform_classes(), state.get("transform_classes")
        if saved != classes:
            raise ValueError(
                f"transforms: expected the states of {classes}, got the states of {saved}"
            )
        if "version" not in state:
            raise ValueError(
                "expected the state of a FragmentSampler, which has a version, got none"
            )
        # Older checkpoints have no statistics; their counters begin at zero.
        statistics = state.get("statistics")
        # The first part to change, because it refuses a wrong state before it changes anything.
        if self._statistics is not None and statistics is not None:
            self._statistics.load_state(statistics)
        for transform, transform_state in zip(self.transforms, state["transforms"], strict=True):
            transform.load_state(transform_state)
        self._batches = int(state["batches"])
        # Versions never decrease: workers that are still running may have a higher one.
        self._version = max(self._version, int(state["version"]))
        self._filler.forget_columns()

    def _transform_classes(self) -> list[str]:
        return [type(transform).__name__ for transform in self.transforms]

    # ------------------------------------------------------------------ the end

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("FragmentSampler: the sampler is closed")

    def close(self) -> None:
        """Close the handler. The source and the workers stay open. Idempotent."""
        # The workers are closed by their owner, and before source and statistics, which they use.
        self._closed = True
        self.handler.close()
