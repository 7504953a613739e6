"""Steps that were lost because the process of their environment died and was restarted.

    row        t - 1          t              t + 1
    step       the last one   lost           the first of the next episode
    valid      true           false          true
    truncated  set here       -              -
    aborted    set here       -              -

The value after row t - 1 is the one of row t, as the agent has seen that observation before the crash.
Final observations that the dead process had not delivered are lost too: the steps before them cannot be used,
so they are treated in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from parllel.arrays.array import Array
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves
from parllel.cages.cage_interface import CageInterface
from parllel.cages.stepping.step_result import Crash, FinalObservation
from parllel.transforms.transform import Transform
from parllel.types import BatchSpec

_ZEROED = ("reward", "terminated", "truncated", "done")


class LostSteps:
    """Marks lost steps in `env.valid`, and the ends of their episodes in `env.aborted` and `env.truncated`.

    Args:
        samples: the sampler's buffer.
        batch_spec: T and B.
        transforms: the sampler's transforms.

    Attributes:
        episodes: number of episodes that were lost so far.

    Raises:
        ValueError: if a field is missing, the samples have `env.next_observation`, or a transform uses steps
            that are not valid.
    """

    def __init__(
        self, samples: Samples, batch_spec: BatchSpec, transforms: Sequence[Transform] = ()
    ) -> None:
        check_transforms_skip_invalid(transforms)
        for name in ("valid", "aborted"):
            field = getattr(samples.env, name, None)
            if not isinstance(field, Array) or field.shape[:2] != batch_spec.shape:
                raise ValueError(
                    f"samples: expected a field env.{name}, bool {list(batch_spec.shape)}, because the "
                    f"cages restart dead processes, whose last steps are lost; got {field!r}. "
                    "allocate_samples adds it for such cages"
                )
        if getattr(samples.env, "next_observation", None) is not None:
            raise ValueError(
                "samples: expected no field env.next_observation, because the cages restart dead "
                "processes, which may not have delivered the last observations of their episodes"
            )
        self.episodes = 0
        self._samples = samples
        self._pairs = _pairs_of(samples)

    def start_batch(self) -> None:
        """Mark all steps as valid."""
        np.asarray(self._samples.env.valid)[...] = True
        np.asarray(self._samples.env.aborted)[...] = False

    def mark(self, t: int, b: int) -> bool:
        """Mark the step of row `t` as lost. Returns whether its episode began in an earlier batch."""
        env = self._samples.env
        valid, done = np.asarray(env.valid), np.asarray(env.done)
        valid[t, b] = False
        for name in _ZEROED:
            np.asarray(getattr(env, name))[t, b] = 0
        if t and valid[t - 1, b] and not done[t - 1, b]:
            for name in ("truncated", "done", "aborted"):
                np.asarray(getattr(env, name))[t - 1, b] = True
            for after, seen in self._pairs:
                np.asarray(after)[t - 1, b] = np.asarray(seen)[t, b]
        return not valid[:t, b].any()

    def mark_all(
        self, crashes: Iterable[Crash], final: Sequence[FinalObservation]
    ) -> tuple[list[int], list[int]]:
        """Mark all steps that crashes of a batch with automatic resets have lost.

        final: the final observations of the batch.

        Returns the columns whose first episode is lost, and the columns whose environment needs a reset.
        """
        delivered = {(one.row, one.column) for one in final}
        first, waiting, reached = [], [], dict[int, int]()
        T = len(self._samples.env.valid)
        for crash in sorted(
            crashes, key=lambda one: (one.column, T if one.row is None else one.row)
        ):
            b, stop = crash.column, T if crash.row is None else crash.row
            self.episodes += 1
            lost = [t for t in self._cut(reached.get(b, 0), stop, b) if (t, b) not in delivered]
            lost += [] if crash.row is None else [crash.row]
            # All of them are marked, in the order of time.
            if sum(self.mark(t, b) for t in lost):
                first.append(b)
            if crash.row is None:
                waiting.append(b)
            reached[b] = stop + 1
        return first, waiting

    def _cut(self, start: int, stop: int, b: int) -> list[int]:
        """Return the rows in which time limits ended episodes."""
        env = self._samples.env
        rows = slice(start, stop)
        cut = np.asarray(env.truncated)[rows, b] & ~np.asarray(env.terminated)[rows, b]
        found = np.flatnonzero(cut & ~np.asarray(env.aborted)[rows, b]).tolist()
        return [start + t for t in found]


def restarts_of(cages: Sequence[CageInterface]) -> int | None:
    """Return the number of restarts of all cages; None if no cage restarts dead processes."""
    counts = [cage.restarts for cage in cages if cage.restarts is not None]
    return sum(counts) if counts else None


def check_transforms_skip_invalid(transforms: Iterable[Transform]) -> None:
    """Raise ValueError for a transform that uses steps where `env.valid` is false."""
    for transform in transforms:
        if not transform.skips_invalid:
            raise ValueError(
                f"{type(transform).__name__}: expected a transform that skips steps that are not in "
                "env.valid, because the cages restart dead processes, whose last steps are lost; this "
                "one has skips_invalid = False"
            )


def check_no_restarts(cages: Sequence[CageInterface], who: str, why: str) -> None:
    """Raise ValueError for cages that restart dead processes, in a sampler that cannot go on after it."""
    for i, cage in enumerate(cages):
        if cage.restarts is not None:
            raise ValueError(
                f"{who}: cage {i} ({cage.spaces.name}): expected a cage without restarts, because {why}"
            )


def _pairs_of(samples: Samples) -> list[tuple[Any, Any]]:
    """Return the fields of what follows truncated episodes, each with the field to copy it from."""
    agent = samples.agent
    sources = {
        "final_value": getattr(getattr(agent, "agent_info", None), "value", None),
        "final_observation": getattr(agent, "observation", samples.env.observation),
    }
    pairs: list[tuple[Any, Any]] = []
    for name, source in sources.items():
        target = getattr(agent, name, None)
        if target is None:
            continue
        if source is None:
            raise ValueError(
                f"samples: agent.{name}: expected a field agent.agent_info.value, from which it is copied "
                "where a process died"
            )
        seen = dict(buffer_leaves(source))
        pairs += [(leaf, seen[path]) for path, leaf in buffer_leaves(target)]
    return pairs
