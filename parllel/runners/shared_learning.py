"""One run of several learners: the cycle of the first one, and what the others do at its requests.

first learner (SharedCycle)              other learners (OtherLearner)
begin     <------- size, seeds ----------  built
          -- load: algorithm, weights -->  restore them, and their own part of a checkpoint
sample    -- batch(elapsed steps) ------>  collect a batch with their own environments
          <------- steps, episodes ------
learn     -- learn(elapsed steps) ------>  optimize_agent; the gradients are added up in between
          <------- checksum -------------  of the weights, which must be equal
state     -- state() ------------------->
          <------- sampler, agent -------  without the weights
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parllel.agents.weights import load_weights, state_without_weights, weights_of
from parllel.algos.algorithm import Algorithm
from parllel.algos.learner_group import LearnerGroup
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WorkerError
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.saved_parts import load_random_state, random_state
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.cage_columns import seed_keys
from parllel.samplers.sampler import Sampler
from parllel.types import BatchSpec, State


class SharedCycle(LearningCycle):
    """The LearningCycle of the first of several learners.

    Args:
        sampler, algorithm: of this process.
        learners: the other processes, whose runners were built by the same function.
        folder: of the run; None if it has none.
    """

    def __init__(
        self,
        sampler: Sampler,
        algorithm: Algorithm,
        learners: LearnerGroup,
        folder: Path | None,
    ) -> None:
        super().__init__(sampler, algorithm)
        self.n_learners = learners.n
        self._learners, self._folder = learners, folder
        self._steps = 0  # of the last batch, of the other learners
        self._begun = False
        # Of the other learners, from a checkpoint, until they have begun.
        self._loaded: list[State] | None = None

    def begin(self) -> None:
        """Start the other learners, and send them the weights and the state of the algorithm.

        Raises:
            ValueError: if environments of two learners have equal seeds, or learners have batches of
                different sizes.
        """
        if not self._begun:
            _check_parts([part_of(self.sampler), *self._learners.start(self._folder)])
            self._begun = True
            self._send_states()

    def _send_states(self) -> None:
        common = {
            "algorithm": self.algorithm.state(),
            "weights": weights_of(_agent_of(self.algorithm)),
        }
        nothing: list[Any] = [None] * (self._learners.n - 1)
        self._learners.ask("load", common, each=self._loaded or nothing)
        self._learners.answers()
        self._loaded = None

    def sample(
        self, elapsed_steps: int, *, timed: bool
    ) -> tuple[Samples, list[TrajInfo], dict[str, float]]:
        """Collect the batches of all learners. Returns that of this one, and the episodes of all."""
        self._learners.ask("batch", elapsed_steps)
        samples, trajs, seconds = super().sample(elapsed_steps, timed=timed)
        answers = self._learners.answers()
        self._steps = sum(steps for steps, _ in answers)
        for _, others in answers:
            trajs = [*trajs, *others]
        return samples, trajs, seconds

    def count_steps(self, samples: Samples) -> int:
        """Return the number of environment steps in the last batch of all learners."""
        return super().count_steps(samples) + self._steps

    def learn(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Learn together. Returns the diagnostics, which are those of the whole batch.

        Raises:
            WorkerError: if the weights of another learner differ from those of this one.
        """
        self._learners.ask("learn", elapsed_steps)
        diagnostics = super().learn(elapsed_steps, samples)
        own = checksum(self.algorithm)
        for rank, found in enumerate(self._learners.answers(), start=1):
            if found != own:
                raise WorkerError(
                    f"learner {rank}: its weights differ from those of learner 0, so something other than "
                    "the algorithm changed them in one process only, such as a callback"
                )
        return diagnostics

    def state(self) -> State:
        """Return the states of the other learners."""
        others = self._loaded
        if self._begun:
            self._learners.ask("state")
            others = self._learners.answers()
        return {"learners": {"n": self.n_learners, "others": others}}

    def load_state(self, state: State) -> None:
        """Restore the states of the other learners, now or when they start."""
        self._loaded = state["learners"]["others"]
        if self._begun:
            self._send_states()


def join_learners(
    sampler: Sampler, algorithm: Algorithm, learners: LearnerGroup, batch_spec: BatchSpec
) -> None:
    """Have a sampler and an algorithm compute what concerns the whole batch with other learners.

    Raises:
        TypeError: if the algorithm, the sampler or one of its transforms does not support it. The message
            names it.
    """
    if not isinstance(sampler, BatchSampler):
        raise TypeError(
            "learners: expected a sampler that steps environments in this process or its workers, such as "
            f"BasicSampler, got a {type(sampler).__name__}"
        )
    algorithm.join(learners, batch_spec)
    for transform in sampler.transforms:
        transform.share_statistics(learners.gather)


class OtherLearner:
    """Answers the requests of the first learner, in another process.

    Args:
        sampler, algorithm: of the runner that was built in this process. The runner itself never runs.
    """

    def __init__(self, sampler: Sampler, algorithm: Algorithm) -> None:
        self._sampler, self._algorithm = sampler, algorithm
        self._samples: Any = None

    def answer(self, op: str, *args: Any) -> Any:
        """Do what the first learner has asked for, and return the answer."""
        sampler, algorithm = self._sampler, self._algorithm
        if op == "load":
            return _load(sampler, algorithm, *args)
        if op == "batch":
            self._samples, trajs = sampler.collect_batch(*args)
            return sampler.count_steps(self._samples), trajs
        if op == "learn":
            algorithm.optimize_agent(args[0], self._samples)
            return checksum(algorithm)
        assert op == "state"
        return {
            "sampler": sampler.state(),
            "agent": state_without_weights(_agent_of(algorithm)),
            "random": random_state(),
        }


class LearnerPart(NamedTuple):
    """What one learner contributes to each batch: its size, and a key for the seed of each environment."""

    batch_spec: BatchSpec
    seeds: list[Any]


def part_of(sampler: Sampler) -> LearnerPart:
    """Return the part of the learner that owns a sampler."""
    assert isinstance(sampler, BatchSampler)
    return LearnerPart(sampler.batch_spec, seed_keys(sampler.cages.cages))


def checksum(algorithm: Algorithm) -> int:
    """Return a number that is equal for equal weights."""
    found = 0
    for _, leaf in sorted(_leaves(weights_of(_agent_of(algorithm)))):
        found = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), found)
    return found


def _leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        parts = [_leaves(value, f"{path}.{name}") for name, value in tree.items()]
        return [leaf for part in parts for leaf in part]
    return [(path, np.asarray(tree))]


def _load(sampler: Sampler, algorithm: Algorithm, common: State, own: State | None) -> None:
    agent = _agent_of(algorithm)
    load_weights(agent, common["weights"])
    algorithm.load_state(common["algorithm"])
    if own is not None:
        sampler.load_state(own["sampler"])
        agent.load_state({**agent.state(), **own["agent"]})
    algorithm.prepare()
    if own is not None:
        load_random_state(own["random"])  # last: loading may draw


def _agent_of(algorithm: Algorithm) -> Any:
    return algorithm.agent  # type: ignore[attr-defined]


def _check_parts(parts: Sequence[LearnerPart]) -> None:
    """Raise ValueError if parts differ in size, or environments of two learners have equal seeds."""
    owners: dict[Any, int] = {}
    for rank, part in enumerate(parts):
        if part.batch_spec != parts[0].batch_spec:
            raise ValueError(
                f"learners: expected batches of the same size, got {parts[0].batch_spec} from learner 0 and "
                f"{part.batch_spec} from learner {rank}"
            )
        for key in part.seeds:
            if key is not None and owners.setdefault(key, rank) != rank:
                raise ValueError(
                    f"learners: environments of learners {owners[key]} and {rank} have the same seed, so "
                    "they would collect the same episodes; draw the seeds from learners.seeds(seed)"
                )
