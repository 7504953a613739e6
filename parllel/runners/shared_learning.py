"""One run of several learners: the cycle of the first one, and what the others do at its requests.

    first learner (SharedCycle)              other learners (OtherLearner)
    begin     <------- size, seeds ----------  built
              -- load: algorithm, weights -->  restore them, and their own part of a checkpoint
    sample    -- batch(elapsed steps) ------>  collect a batch with their own environments
              <------- steps, episodes ------
    learn     -- learn(elapsed steps) ------>  learn; the gradients are added up in between
              <------- checksum -------------  of the weights, which must be equal; now and then
    state     -- state() ------------------->
              <------- their own parts ------  without the weights

Each learner has the LearningCycle of a run with one learner. SharedCycle wraps that of the first.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parllel.agents.agent import Agent
from parllel.agents.weights import load_weights
from parllel.algos.algorithm import Algorithm
from parllel.algos.learner_group import LearnerGroup
from parllel.buffers.samples import Samples
from parllel.cages.traj_info import TrajInfo
from parllel.errors import WorkerError
from parllel.logging.logger import Logger
from parllel.replays.replay import Replay
from parllel.runners.learning_cycle import LearningCycle
from parllel.runners.saved_parts import REPLAY, load_random_state, random_state
from parllel.samplers.asynchronous_sampler import AsynchronousSampler
from parllel.samplers.batch_sampler import BatchSampler
from parllel.samplers.cage_columns import seed_keys
from parllel.samplers.sampler import Sampler
from parllel.types import BatchSpec, State

# Weights are compared before each checkpoint, and this often: it takes as long as a small update.
_COMPARE_S = 1.0


class SharedCycle(LearningCycle):
    """The LearningCycle of the first of several learners.

    Args:
        cycle: of a run with one learner, with the sampler and the algorithm of this process.
        learners: the other processes, whose runners were built by the same function.
        batch_spec: size of this learner's batches.
        replay: what this learner draws from; None without.
        folder: of the run; None if it has none.

    Attributes:
        cycle: as given.
    """

    def __init__(
        self,
        cycle: LearningCycle,
        learners: LearnerGroup,
        batch_spec: BatchSpec,
        replay: Replay | None,
        folder: Path | None,
    ) -> None:
        super().__init__(cycle.sampler, cycle.algorithm)
        self.cycle, self.stages = cycle, cycle.stages  # type: ignore[misc]
        self.n_learners = learners.n
        self.replay = replay
        self._learners, self._batch_spec, self._folder = learners, batch_spec, folder
        self._steps = 0  # of the last batch, of the other learners
        self._begun = False
        self._compared_s = -_COMPARE_S
        # Of the other learners, from a checkpoint, until they have begun.
        self._loaded: list[State] | None = None

    def part(self) -> LearnerPart:
        """Return what this learner contributes to each batch.

        Raises:
            TypeError: if its sampling process uses a transform that depends on other columns.
        """
        sampler = self.sampler
        if isinstance(sampler, AsynchronousSampler):
            seeds, mixing = sampler.columns()
            if mixing:
                raise TypeError(
                    f"learners: {mixing[0]} cannot be used in the sampling process of an AsynchronousSampler "
                    "with several learners, because its results may depend on the columns of other "
                    "learners; give it to a TransformingAlgorithm"
                )
        else:
            assert isinstance(sampler, BatchSampler)
            seeds = seed_keys(sampler.cages.cages)
        drawn = None if self.replay is None else self.replay.batch_size
        return LearnerPart(self._batch_spec, drawn, seeds)

    def begin(self) -> None:
        """Start the other learners, and send them the weights and the state of the algorithm.

        Raises:
            ValueError: if environments of two learners have equal seeds, or learners have batches of
                different sizes.
        """
        if not self._begun:
            others = self._learners.start(self._folder)
            _check_parts([self.part(), *others])
            self._begun = True
            self._send_states()
        self.cycle.begin()

    def _send_states(self) -> None:
        common = {
            "algorithm": self.algorithm.state(),
            "weights": _learned(_agent_of(self.algorithm)),
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
        samples, trajs, seconds = self.cycle.sample(elapsed_steps, timed=timed)
        answers = self._learners.answers()
        self._steps = sum(steps for steps, _ in answers)
        for _, others in answers:
            trajs = [*trajs, *others]
        return samples, trajs, seconds

    def count_steps(self, samples: Samples) -> int:
        """Return the number of environment steps in the last batch of all learners."""
        return self.cycle.count_steps(samples) + self._steps

    def learn(self, elapsed_steps: int, samples: Samples) -> Mapping[str, Any]:
        """Learn together. Returns the diagnostics, which are those of the whole batch.

        Raises:
            WorkerError: if the weights of another learner differ from those of this one.
        """
        compares = time.monotonic() - self._compared_s >= _COMPARE_S
        self._learners.ask("learn", elapsed_steps, compares)
        diagnostics = self.cycle.learn(elapsed_steps, samples)
        own = checksum(self.algorithm) if compares else None
        self._compare(own, self._learners.answers())
        if compares:
            self._compared_s = time.monotonic()
        return diagnostics

    @staticmethod
    def _compare(own: int | None, others: Sequence[int | None]) -> None:
        for rank, found in enumerate(others, start=1):
            if found != own:
                raise WorkerError(
                    f"learner {rank}: its weights differ from those of learner 0, so something other than "
                    "the algorithm changed them in one process only, such as a callback, or their "
                    "processors round sums differently"
                )

    def take_seconds(self) -> Mapping[str, float]:
        """Return the seconds of the stages of this learner."""
        return self.cycle.take_seconds()

    def finish(self) -> None:
        """End an iteration. The other learners have, as they run no callbacks."""
        self.cycle.finish()

    def row_diagnostics(self, last: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the diagnostics to log in a row, which are those of the whole batches."""
        return self.cycle.row_diagnostics(last)

    def log(self, logger: Logger) -> None:
        """Add values of this learner's iterations to the next row."""
        self.cycle.log(logger)

    def state(self, *, replay: bool = True) -> State:
        """Return the cycle's state and the states of the other learners.

        replay: whether to include their replays.

        Raises:
            WorkerError: if the weights of another learner differ from those of this one.
        """
        others = self._loaded
        if self._begun:
            self._learners.ask("state", replay)
            answers = self._learners.answers()
            self._compare(checksum(self.algorithm), [found for found, _ in answers])
            others = [state for _, state in answers]
        return {**self.cycle.state(), "learners": {"n": self.n_learners, "others": others}}

    def load_state(self, state: State) -> None:
        """Restore the cycle's state, and those of the other learners, now or when they start."""
        self.cycle.load_state(state)
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
    if not isinstance(sampler, (BatchSampler, AsynchronousSampler)):
        raise TypeError(
            "learners: expected a sampler that steps environments in this process or its workers, such as "
            f"BasicSampler, or an AsynchronousSampler, got a {type(sampler).__name__}"
        )
    algorithm.join(learners, batch_spec)
    # Those of a sampling process are checked when it is built.
    if isinstance(sampler, BatchSampler):
        for transform in sampler.transforms:
            transform.share_statistics(learners.gather)


class OtherLearner:
    """Answers the requests of the first learner, in another process.

    Args:
        shared: the cycle of the runner that was built in this process. The runner itself never runs.
    """

    def __init__(self, shared: SharedCycle) -> None:
        self._cycle, self._replay = shared.cycle, shared.replay
        self._samples: Any = None
        self._elapsed_steps = 0

    def answer(self, op: str, *args: Any) -> Any:
        """Do what the first learner has asked for, and return the answer."""
        cycle = self._cycle
        if op == "load":
            return self._load(*args)
        if op == "batch":
            self._samples, trajs, _ = cycle.sample(*args, timed=False)
            return cycle.count_steps(self._samples), trajs
        if op == "learn":
            self._elapsed_steps, compares = args
            cycle.learn(self._elapsed_steps, self._samples)
            cycle.finish()
            return checksum(cycle.algorithm) if compares else None
        assert op == "state"
        return checksum(cycle.algorithm), self._state(*args)

    def _state(self, replay: bool) -> State:
        cycle, parts = self._cycle, {}
        if self._replay is not None and replay:
            parts[REPLAY] = self._replay.state()
        return {
            "sampler": cycle.sampler.state(),
            "agent": _own_state(_agent_of(cycle.algorithm)),
            "random": random_state(),
            # As in the state of a runner, which a cycle loads its part from.
            "cycle": {
                **cycle.state(),
                "elapsed_steps": self._elapsed_steps,
                "parts": parts,
            },
        }

    def _load(self, common: State, own: State | None) -> None:
        cycle = self._cycle
        sampler, algorithm = cycle.sampler, cycle.algorithm
        agent = _agent_of(algorithm)
        load_weights(agent, common["weights"])
        algorithm.load_state(common["algorithm"])
        if own is not None:
            saved = own["cycle"]
            # Before the sampler, as in a run of one learner.
            if self._replay is not None and REPLAY in saved["parts"]:
                self._replay.load_state(saved["parts"][REPLAY])
            sampler.load_state(own["sampler"])
            agent.load_state({**agent.state(), **own["agent"]})
            cycle.load_state(saved)
            self._elapsed_steps = int(saved["elapsed_steps"])
        cycle.begin()
        algorithm.prepare()
        if own is not None:
            load_random_state(own["random"])  # last: loading may draw


class LearnerPart(NamedTuple):
    """What one learner contributes to each batch.

    Attributes:
        batch_spec: size of the batches of its sampler.
        drawn: number of items that its replay draws at a time; None without one.
        seeds: a key for the seed of each environment.
    """

    batch_spec: BatchSpec
    drawn: int | None
    seeds: list[Any]


def checksum(algorithm: Algorithm) -> int:
    """Return a number that is equal for equal weights."""
    found = 0
    for _, leaf in sorted(_leaves(_learned(_agent_of(algorithm)))):
        found = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), found)
    return found


def _leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        parts = [_leaves(value, f"{path}.{name}") for name, value in tree.items()]
        return [leaf for part in parts for leaf in part]
    return [(path, np.asarray(tree))]


def _agent_of(algorithm: Algorithm) -> Agent:
    agent: Agent = algorithm.agent  # type: ignore[attr-defined]
    return agent


def _learned(agent: Agent) -> State:
    """Return the entries of an agent's state that are equal in all learners."""
    state = agent.state()
    return {name: state[name] for name in (*agent.models(), *agent.also_learned)}


def _own_state(agent: Agent) -> State:
    """Return the entries of an agent's state that differ between learners."""
    equal = {*agent.models(), *agent.also_learned}
    return {name: part for name, part in agent.state().items() if name not in equal}


def _check_parts(parts: Sequence[LearnerPart]) -> None:
    """Raise ValueError if parts differ in size, or environments of two learners have equal seeds."""
    owners: dict[Any, int] = {}
    for rank, part in enumerate(parts):
        if part.drawn != parts[0].drawn:
            raise ValueError(
                f"learners: expected replays with the same batch_size, got {parts[0].drawn} from learner 0 "
                f"and {part.drawn} from learner {rank}"
            )
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
