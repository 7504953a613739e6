"""On-policy learning while the next batch is being sampled."""

from __future__ import annotations

from parllel.algos.algorithm import Algorithm
from parllel.logging.logger import Logger
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.matching_parts import check_published_agent
from parllel.runners.runner import Runner
from parllel.samplers.publishing_sampler import PublishingSampler
from parllel.samplers.sampler import Sampler
from parllel.types import State


class BatchAges:
    """How old the batches of a PublishingSampler were, and how long the learner waited for them."""

    def __init__(self) -> None:
        self._staleness: list[int] = []
        self._waited_s: list[float] = []

    def add(self, sampler: PublishingSampler) -> None:
        """Add the last batch. Call this before the weights are published again."""
        stats = sampler.stats
        self._staleness.append(stats["staleness"])
        self._waited_s.append(stats["waited_s"])

    def log(self, logger: Logger) -> None:
        """Log `asynchronous/staleness` and `asynchronous/waited_s` of the batches since the last row."""
        logger.log_array("asynchronous/staleness", self._staleness)
        logger.log_value("asynchronous/waited_s", sum(self._waited_s))
        self._staleness, self._waited_s = [], []

    def state(self) -> State:
        """Return the statistics collected for the next row."""
        waited = {"staleness": list(self._staleness), "waited_s": list(self._waited_s)}
        return {"asynchronous": waited}

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""
        self._staleness = [int(value) for value in state["asynchronous"]["staleness"]]
        self._waited_s = [float(value) for value in state["asynchronous"]["waited_s"]]


class AsynchronousCycle(LearningCycle):
    """Learns from one batch while a PublishingSampler makes the next, and publishes each update.

    Raises:
        TypeError: if the sampler does not publish weights.
        ValueError: if the sampler publishes the weights of an agent other than the algorithm's.
    """

    sampler: PublishingSampler

    def __init__(self, sampler: Sampler, algorithm: Algorithm) -> None:
        if not isinstance(sampler, PublishingSampler):
            raise TypeError(
                "sampler: expected a sampler that publishes weights, such as AsynchronousSampler, "
                f"got {type(sampler).__name__}; OnPolicyRunner accepts any sampler"
            )
        check_published_agent(sampler, algorithm)
        super().__init__(sampler, algorithm)
        self._ages = BatchAges()

    def begin(self) -> None:
        """Publish the weights, which a checkpoint may have changed since the agent was built."""
        self.sampler.publish()

    def finish(self) -> None:
        """Record the staleness of the batch, and publish the new weights."""
        # Before publishing, which would make the batch one update older.
        self._ages.add(self.sampler)
        self.publish()

    def publish(self) -> None:
        """Publish the weights after an update."""
        self.sampler.publish()

    def log(self, logger: Logger) -> None:
        """Log `asynchronous/staleness` and `asynchronous/waited_s` of the batches since the last row."""
        self._ages.log(logger)

    def state(self, *, replay: bool = True) -> State:
        """Return the statistics collected for the next row."""
        return self._ages.state()

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. Batches sampled ahead are sampled again."""
        self._ages.load_state(state)


class AsynchronousRunner(Runner):
    """Learns from one batch while a PublishingSampler makes the next.

    The weights are published after each update. The next batch is started before this update, so
    its policy lags behind by its staleness, usually 1 update. PPO needs no further correction: it
    computes and clips its ratio relative to the log probabilities in the batch, which belong to the
    policy that sampled it. Values and advantages also belong to the older policy, unless the
    algorithm is a `TransformingAlgorithm` that estimates them again.

    Args: as for `Runner`; the sampler must be a PublishingSampler, such as AsynchronousSampler, of the
        algorithm's agent.

    In addition to the values of other runners, each row has `asynchronous/staleness` (in updates) and
    `asynchronous/waited_s` (seconds in which the learner was idle) for the batches since the last row.
    `time/sampling_s` counts only that waiting.
    """

    cycle_class = AsynchronousCycle
