"""Reference for the rows of a cage of one environment, from a plain Gymnasium loop.

`simulate` knows nothing of cages; `record_columns` (cage_hooks.py) drives a cage and reads its buffer. Both
return one `BatchRecord` per batch, which have to be equal.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from parllel.buffers.allocation import Field
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import parts_of
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_map
from parllel.cages.spaces import example_of, stored_example
from parllel.testing.transform_samples import allocate_numbers
from parllel.types import BatchSpec, Tree

INFO = ("half", "step")  # info keys of a CountingEnv that `make_samples` stores


@dataclass
class BatchRecord:
    """One column of a batch, as plain values.

    Attributes:
        observations: T + 1 of them.
        rewards, terminated, truncated, infos: T; infos are dicts of what was asked for.
        needs_reset: T + 1, of which the first is that before the first row.
        final: (row, observation) of each episode that ended.
        trajs: (length, return, discounted return) of each.
    """

    observations: list[Tree] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)
    done: list[bool] = field(default_factory=list)
    infos: list[Tree] = field(default_factory=list)
    needs_reset: list[bool] = field(default_factory=list)
    final: list[tuple[int, Tree]] = field(default_factory=list)
    trajs: list[tuple[int, float, float]] = field(default_factory=list)


def seeds_of(seed: Any) -> tuple[int, int]:
    """Return a cage's seeds of its environment and its action space."""
    # Written out here: taken from the cages, it would agree with them whatever they do.
    if isinstance(seed, np.random.SeedSequence):
        first, second = seed.generate_state(2)
        return int(first), int(second)
    return int(seed), int(np.random.SeedSequence(seed).generate_state(2)[1])


def simulate(
    env: Any,
    seed: Any,
    batches: Sequence[Sequence[Any]],
    *,
    automatic: bool = True,
    discount: float = 1.0,
    info: bool = True,
) -> list[BatchRecord]:
    """Return the expected batches for these actions, one per row.

    With `automatic` an ended environment is reset within the step; otherwise rows hold zeros until the next
    batch, whose first row is then the reset observation.
    """
    # Seeded once: later resets continue the environment's generator, here as in a cage.
    observation, _ = env.reset(seed=seeds_of(seed)[0])
    # Environments may return one array each time, with new numbers in it.
    observation = copy.deepcopy(observation)
    # What a row holds of an environment that waits. Its cells still have an earlier batch in them,
    # so a cage has to write these.
    zeros = example_of(env.observation_space)
    records, rewards, ended = [], [], False
    for actions in batches:
        if ended:
            # Where `record_columns` calls `start_reset` between batches.
            observation, ended = copy.deepcopy(env.reset()[0]), False
        record = BatchRecord([observation], needs_reset=[False])
        for t, action in enumerate(actions):
            if ended:
                _append(record, zeros, 0.0, False, False, {} if info else None, ended)
                continue
            observation, reward, terminated, truncated, found = copy.deepcopy(env.step(action))
            rewards.append(float(reward))
            if terminated or truncated:
                # Before the reset, after which a cage has this observation nowhere else.
                record.final.append((t, observation))
                # By the definition, where cages add it up step by step.
                discounted = sum(r * discount**k for k, r in enumerate(rewards))
                record.trajs.append((len(rewards), sum(rewards), discounted))
                rewards = []
                if automatic:
                    observation = copy.deepcopy(env.reset()[0])
                else:
                    ended = True
            wanted = {name: found[name] for name in INFO} if info else None
            _append(record, observation, float(reward), terminated, truncated, wanted, ended)
        records.append(record)
    return records


def _append(
    record: BatchRecord,
    observation: Tree,
    reward: float,
    terminated: bool,
    truncated: bool,
    info: Tree,
    needs_reset: bool,
) -> None:
    record.observations.append(observation)
    record.rewards.append(reward)
    record.terminated.append(terminated)
    record.truncated.append(truncated)
    record.done.append(terminated or truncated)
    record.infos.append(info)
    record.needs_reset.append(needs_reset)


def read_batch(samples: Samples, column: int, T: int) -> BatchRecord:
    """Return a copy of a column's content."""
    env = samples.env
    # A batch may lie in memory that workers map, but no row is in progress: between `finish_row`
    # and the next start only this process reads or writes it. `final` and `trajs` come from the
    # cage's methods.
    made = BatchRecord()
    made.observations = [plain(env.observation, t, column) for t in range(T + 1)]
    for name in ("terminated", "truncated", "done"):
        setattr(made, name, [bool(plain(getattr(env, name), t, column)) for t in range(T)])
    made.rewards = [float(plain(env.reward, t, column)) for t in range(T)]
    made.infos = [plain(env.env_info, t, column) for t in range(T)]
    return made


def plain(tree: Tree, t: int, column: int) -> Tree:
    """Return a copy of one cell of a tree of Arrays: dicts of numpy values; None stays None."""

    def convert(node: Tree) -> Tree:
        if isinstance(node, NamedTuple):
            return {name: convert(part) for name, part in node._asdict().items()}
        # A copy, since the next batch overwrites the cell.
        return None if node is None else np.array(node[t, column])

    return convert(tree)


def assert_same_batches(found: Sequence[BatchRecord], expected: Sequence[BatchRecord]) -> None:
    """Compare batches, after narrowing expected values to the buffer's dtypes."""
    assert len(found) == len(expected)
    for k, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        for name in ("terminated", "truncated", "done", "needs_reset"):
            assert getattr(mine, name) == getattr(theirs, name), f"batch {k}: {name}"
        rewards = [float(np.float32(reward)) for reward in theirs.rewards]
        assert mine.rewards == rewards, f"batch {k}: rewards"
        assert_same_tree(mine.observations, theirs.observations, f"batch {k}: observations")
        # A row without a step leaves the infos of an earlier one standing.
        stepped = [t for t, info in enumerate(theirs.infos) if info != {}]
        for t in stepped:
            assert_same_tree(mine.infos[t], theirs.infos[t], f"batch {k}: info {t}")
        assert [t for t, _ in mine.final] == [t for t, _ in theirs.final], f"batch {k}: final"
        for (t, one), (_, other) in zip(mine.final, theirs.final, strict=True):
            assert_same_tree(one, other, f"batch {k}: final observation of row {t}")
        assert len(mine.trajs) == len(theirs.trajs), f"batch {k}: trajs"
        # Not exactly: sums in another order round differently.
        np.testing.assert_allclose(mine.trajs, theirs.trajs, rtol=1e-12)


def assert_same_tree(found: Tree, expected: Tree, what: str) -> None:
    """Compare trees leaf by leaf, exactly; tuples equal dicts with the fields _0, _1, ..."""
    if expected is None:
        assert found is None, what
    elif (parts := parts_of(expected)) is not None:
        there = parts_of(found) or {}
        assert set(there) == set(parts), what
        for name, part in parts.items():
            assert_same_tree(there[name], part, f"{what}.{name}")
    else:
        # What the environment returned, as narrow as the buffer stores it.
        dtype = np.asarray(found).dtype
        np.testing.assert_array_equal(found, np.asarray(expected).astype(dtype), err_msg=what)


def make_samples(
    env: Any,
    T: int,
    B: int,
    *,
    storage: Any = "local",
    info: bool = True,
) -> Samples:
    """Allocate the fields that a cage of such environments reads and writes."""

    def kept(leaf: Any) -> Field:
        # Actions in the dtype of their space: rounded ones would not be those that `simulate` plays.
        return Field(leaf, dtype=np.asarray(leaf).dtype)

    # One with a shape and one without, of two dtypes. The string `note` fits no buffer.
    infos = NamedTuple(half=np.zeros(1, np.float32), step=np.int64(0))
    return allocate_numbers(
        BatchSpec(T, B),
        observation=stored_example(env.observation_space),
        action=buffer_map(kept, example_of(env.action_space)),
        agent_info=None,
        env_info=infos if info else None,
        storage=storage,
    )


def draw_actions(space: spaces.Space[Any], seed: int, batches: int, T: int) -> list[list[Any]]:
    """Return actions for `simulate`, by batch and row."""
    # Seeding the space itself would change what its environment samples.
    space = copy.deepcopy(space)
    space.seed(seed)
    return [[space.sample() for _ in range(T)] for _ in range(batches)]
