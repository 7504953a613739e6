"""Choice between learning and sampling in turn, and sampling in a separate process during learning.

A batch takes the time S to sample in one process, and L to learn from:

    in turn, one process   S + L
    in turn, workers       S1 + L
    overlapped             max(S2 + h, L, (S + k L) / cores)

S1 is S less what `plan_sampling` predicts that workers save, and S2 likewise with the cores that learning
leaves. h is the time to hand over a batch and new weights, in which no environment steps. k is the number of
cores that learning keeps busy.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from parllel.algos import Algorithm, OffPolicyAlgorithm
from parllel.cages import EnvFactory, VectorEnvFactory, VectorizedCage
from parllel.samplers import BatchSampler, Plan, plan_sampling
from parllel.system.processes.cores import available_cores

HANDOVER_S = 1e-3  # of a batch of CartPole and two layers of 64 units, less than this
GAIN = 0.95  # overlapping must take less than this share of the time in turn
MAX_BATCHES = 5
ENOUGH_S = 2.0  # after which no further batch is measured


@dataclass(frozen=True)
class TrainingPlan:
    """Whether to sample while learning, and how to spread environments over processes.

    Attributes:
        overlapped: whether an `AsynchronousSampler` is fastest. Its batches are one update old.
        sampling: plan for `build_cages(parallel=...)`, in the sampling process if `overlapped`.
        why: reason for the choice, in words.
    """

    overlapped: bool
    sampling: Plan
    why: str = "fixed by hand"

    def __str__(self) -> str:
        n, main = self.sampling.n_workers, self.sampling.n_main
        where = f"{n} worker{'s' if n > 1 else ''}"
        where += f" and {main} environments in the process that samples" if main else ""
        if not n:
            where = "all environments in the process that samples"
        way = "overlapped, with batches one update old" if self.overlapped else "in turn"
        return f"{way}, {where}: {self.why}"


class BatchCosts(NamedTuple):
    """Seconds of one batch.

    Attributes:
        sampling_s: to sample it in one process.
        spread_s: to sample it with the workers that are fastest in turn.
        ahead_s: to sample it with the workers that are fastest on the cores that learning leaves.
        learning_s: to learn from it.
        learning_cores: number of cores that learning keeps busy.
    """

    sampling_s: float
    spread_s: float
    ahead_s: float
    learning_s: float
    learning_cores: float = 1.0

    @property
    def in_turn_s(self) -> float:
        """Predicted seconds for sampling, with or without workers, and learning."""
        return min(self.sampling_s, self.spread_s) + self.learning_s

    def overlapped_s(self, n_cores: int) -> float:
        """Predicted seconds for sampling during learning."""
        busy_s = self.sampling_s + self.learning_cores * self.learning_s
        return max(self.ahead_s + HANDOVER_S, self.learning_s, busy_s / n_cores)


def plan_training(
    make_sampler: Callable[[], BatchSampler],
    make_algorithm: Callable[[Any], Algorithm],
    env_factory: EnvFactory | VectorEnvFactory,
    *,
    max_staleness: int,
    n_cores: int | None = None,
) -> TrainingPlan:
    """Measure a few batches, and return which way of sampling and learning is fastest on this machine.

    Both functions make parts that are thrown away after the measurement, so their seeds must be their own.

    Args:
        make_sampler: makes a sampler with all environments in this process.
        make_algorithm: makes the algorithm for the agent of the sampler's handler.
        env_factory: the factory of the sampler's environments.
        max_staleness: by how many updates the algorithm allows a batch to be older than the weights that
            learn from it. With 0, learning and sampling take turns. With 1 or more, as PPO allows, the
            plan may be `overlapped`.
        n_cores: number of cores to plan for; None counts those that this process may use, and measures which
            of them other programs leave.

    Raises:
        TypeError: if one of the functions returns something else.
        ValueError: for a negative `max_staleness`, or if environments of the sampler are in other processes.
    """
    if max_staleness < 0:
        raise ValueError(f"plan_training: max_staleness: expected 0 or more, got {max_staleness}")
    sampler = make_sampler()
    if not isinstance(sampler, BatchSampler):
        kind = type(sampler).__name__
        raise TypeError(
            f"plan_training: make_sampler: expected it to return a BatchSampler, got a {kind}"
        )
    with sampler:
        _check_cages(sampler)
        T, B = sampler.batch_spec.T, sampler.batch_spec.B
        sampling_s, learning_s, learning_cores = _measure(sampler, make_algorithm)
    # One process more than environments at most: the one that learns.
    n_cores = available_cores(B + 1) if n_cores is None else n_cores
    spread = plan_sampling(env_factory, B, n_cores=n_cores)
    ahead = Plan(0, B)
    if n_cores > 2:
        ahead = plan_sampling(env_factory, B, n_cores=n_cores - 1)
    costs = BatchCosts(
        sampling_s,
        # Not less than a fair share of it, as predictions are rough.
        max(sampling_s - T * spread.saved_s, sampling_s / n_cores),
        max(sampling_s - T * ahead.saved_s, sampling_s / n_cores),
        learning_s,
        learning_cores,
    )
    return best_training(costs, spread, ahead, n_cores, max_staleness)


def best_training(
    costs: BatchCosts, spread: Plan, ahead: Plan, n_cores: int, max_staleness: int
) -> TrainingPlan:
    """Return the fastest plan for measured costs; see `plan_training`.

    spread, ahead: plans of the environments, in turn and during learning.
    """
    in_turn_s, overlapped_s = costs.in_turn_s, costs.overlapped_s(n_cores)
    faster = n_cores > 1 and overlapped_s < GAIN * in_turn_s
    overlapped = faster and max_staleness > 0
    why = (
        f"a batch takes {1e3 * costs.sampling_s:.1f} ms to sample in one process and "
        f"{1e3 * costs.learning_s:.1f} ms to learn from, with {n_cores} available "
        f"core{'s' if n_cores > 1 else ''}; predicted {1e3 * in_turn_s:.1f} ms in turn, "
        f"{1e3 * overlapped_s:.1f} ms overlapped"
    )
    if faster and not overlapped:
        why += ", which max_staleness=0 rules out"
    return TrainingPlan(overlapped, ahead if overlapped else spread, why)


def _check_cages(sampler: BatchSampler) -> None:
    for cage in sampler.cages.cages:
        if not isinstance(cage, VectorizedCage):
            raise ValueError(
                "plan_training: make_sampler: expected all environments in this process, got a "
                f"{type(cage).__name__}; build the cages with parallel=False"
            )


def _measure(
    sampler: BatchSampler, make_algorithm: Callable[[Any], Algorithm]
) -> tuple[float, float, float]:
    """Return the median seconds to sample and to learn from a batch, and the cores that learning uses."""
    algorithm = make_algorithm(sampler.handler.agent)
    if not isinstance(algorithm, Algorithm):
        kind = type(algorithm).__name__
        raise TypeError(
            f"plan_training: make_algorithm: expected it to return an Algorithm, got a {kind}"
        )
    if isinstance(algorithm, OffPolicyAlgorithm):
        raise TypeError(
            "plan_training: make_algorithm: expected an algorithm that learns from batches of a sampler, got "
            f"{type(algorithm).__name__}, which learns from what a replay draws"
        )
    algorithm.prepare()
    sampling, learning, cores = [], [], []
    size, until = sampler.batch_spec.size, time.perf_counter() + ENOUGH_S
    for i in range(MAX_BATCHES + 1):
        began = time.perf_counter()
        samples, _ = sampler.collect_batch(i * size)
        sampled, cpu = time.perf_counter(), time.process_time()
        algorithm.optimize_agent((i + 1) * size, samples)
        learned = time.perf_counter()
        if i:  # functions are compiled and loaded in the first batch
            sampling.append(sampled - began)
            learning.append(learned - sampled)
            cores.append((time.process_time() - cpu) / (learned - sampled))
            if learned > until:
                break
    return statistics.median(sampling), statistics.median(learning), statistics.median(cores)
