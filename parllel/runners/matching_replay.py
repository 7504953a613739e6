"""Check that a replay belongs to the sampler, the algorithm and the runner that it is given to."""

from __future__ import annotations

from typing import Any

from parllel.algos.algorithm import Algorithm
from parllel.algos.off_policy_algorithm import OffPolicyAlgorithm
from parllel.algos.transforming_algorithm import TransformingAlgorithm
from parllel.buffers.batches import count_batches
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_arrays
from parllel.cages.owners import Owners
from parllel.replays.replay import Replay
from parllel.replays.uniform_replay import UniformReplay
from parllel.samplers.publishing_sampler import PublishingSampler
from parllel.samplers.sampler import Sampler

_USED = Owners()


def check_replay(sampler: Sampler, algorithm: Algorithm, replay: Any) -> None:
    """Check that a sampler fills this replay, and that the algorithm learns from what it draws.

    Raises:
        TypeError: if `replay` is not a Replay, or the algorithm does not learn from its batches.
        ValueError: if the sampler writes into a different buffer.
    """
    if not isinstance(replay, Replay):
        hint = "; pass UniformReplay(samples, ...)" if isinstance(replay, Samples) else ""
        raise TypeError(f"replay: expected a Replay, got {type(replay).__name__}{hint}")
    _check_algorithm(algorithm, replay)
    samples = getattr(sampler, "samples", None)
    # Samplers in other processes show their samples only with the first batch.
    if not isinstance(samples, Samples):
        return
    if isinstance(sampler, PublishingSampler):
        check_copied_batch(samples, sampler, replay)
    elif samples is not replay.samples:
        raise ValueError(
            f"replay: expected a {type(replay).__name__} of the buffer that the {type(sampler).__name__} "
            "writes into, got one of another buffer; allocate one buffer, with n_batches, and give it to both"
        )


def check_copied_batch(samples: Samples, sampler: Sampler, replay: Replay) -> None:
    """Raise ValueError if batches of a sampler that acts elsewhere cannot be copied into a replay."""
    name, kind = type(sampler).__name__, type(replay).__name__
    if samples.env.reward.block is replay.samples.env.reward.block:
        raise ValueError(
            f"replay: expected a {kind} of another buffer than the {name}'s, from which batches are copied; "
            "allocate a second buffer, with n_batches, for the replay"
        )
    mine, theirs = (getattr(one.env, "valid", None) for one in (replay.samples, samples))
    if theirs is not None and mine is None:
        raise ValueError(
            f"replay: expected a buffer with env.valid, because not all rows of the {name}'s batches hold a "
            f"step, and the {kind} would draw the others too; allocate it with "
            "allocate_samples(..., n_batches=..., valid=True)"
        )


def _check_algorithm(algorithm: Algorithm, replay: Replay) -> None:
    name = type(algorithm).__name__
    if isinstance(algorithm, TransformingAlgorithm):
        raise TypeError(
            "algorithm: expected an OffPolicyAlgorithm, got a TransformingAlgorithm, whose transforms work "
            "on the batches of a sampler and not on those of a replay; give the transforms to the sampler"
        )
    if not isinstance(algorithm, OffPolicyAlgorithm):
        raise TypeError(
            f"algorithm: expected an OffPolicyAlgorithm, which learns from what a replay draws, got {name}; "
            "use OnPolicyRunner"
        )
    drawn = replay.batch_class
    if not issubclass(drawn, algorithm.batch_class):
        raise TypeError(
            f"replay: expected one that draws {algorithm.batch_class.__name__}, which {name} learns from, "
            f"got a {type(replay).__name__}, which draws {drawn.__name__}"
        )


def check_no_replay_needed(algorithm: Algorithm) -> None:
    """Raise TypeError for an off-policy algorithm in a run without a replay."""
    inner = algorithm
    while isinstance(inner, TransformingAlgorithm):
        inner = inner.algorithm
    if isinstance(inner, OffPolicyAlgorithm):
        raise TypeError(
            f"algorithm: {type(inner).__name__} learns from batches drawn from a replay, and not from those "
            "of a sampler; use OffPolicyRunner"
        )


def check_shared_replay(replay: Replay) -> None:
    """Raise TypeError if several learners cannot each draw their share of a batch from such a replay."""
    if not isinstance(replay, UniformReplay):
        raise TypeError(
            f"learners: expected a UniformReplay, from which each learner draws its share of a batch, got a "
            f"{type(replay).__name__}"
        )


def check_learning_starts(
    learning_starts: int, n_steps: int, replay: Replay, n_learners: int = 1
) -> None:
    """Raise ValueError for a number of steps that is never reached, or more than the replays hold.

    n_learners: each of them has such a replay.
    """
    if learning_starts < 0:
        raise ValueError(f"learning_starts: expected 0 or more, got {learning_starts}")
    if learning_starts >= n_steps:
        raise ValueError(
            f"learning_starts: expected fewer than n_steps={n_steps:,}, got {learning_starts:,}: nothing "
            "would be learned"
        )
    capacity = capacity_of(replay) * n_learners
    if learning_starts > capacity:
        raise ValueError(
            f"learning_starts: expected at most {capacity:,}, the environment steps that the replay holds, "
            f"got {learning_starts:,}; allocate a buffer with more batches"
        )


def capacity_of(replay: Replay) -> int:
    """Return the number of environment steps that a replay's buffer holds."""
    T, B = replay.samples.env.done.shape[:2]
    return int(count_batches(buffer_arrays(replay.samples)) * T * B)


def claim_replay(replay: Replay, runner: Any) -> None:
    """Claim a replay for a runner, until `release_replay`.

    Raises:
        ValueError: if another runner, which has not ended, has claimed it.
    """
    other = _USED.owner_of(replay)
    if other not in (None, runner):
        raise ValueError(
            f"replay: expected one that this {type(runner).__name__} has to itself, got the "
            f"{type(replay).__name__} of another {type(other).__name__}; create one for each"
        )
    _USED.claim(replay, runner)


def release_replay(runner: Any) -> None:
    """Release the replay of a runner."""
    _USED.release(runner)
