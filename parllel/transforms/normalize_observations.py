"""Normalise observations to zero mean and unit variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers.allocation import Field
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import field_at, parts_of
from parllel.buffers.samples import Samples
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.errors import WrongStateError
from parllel.transforms.arguments import check_finite_positive, check_positive
from parllel.transforms.batch_memo import BatchMemo
from parllel.transforms.field_checks import RAW, SEEN
from parllel.transforms.observation_leaf import LeafStatistics, LeafViews
from parllel.transforms.running_statistics import RunningMeanStd
from parllel.transforms.transform import Gather, StepTransform, optional_body_of
from parllel.types import State, Tree


class NormalizeObservations(StepTransform):
    """Writes observations minus their running mean, divided by their running standard deviation.

    Each leaf of the observation has its own statistics, which stay constant while a batch is
    sampled. `end_batch` adds rows 0 to T - 1 of the raw observations to them. If a field
    `env.valid` exists, only the entries where it is true are added. In the first batch,
    observations are only clipped.

    Args:
        source: path of the raw observation, [T, B, ...] with padding, or of a tree of these. One part of a
            Dict is "env.observation.position".
        target: path of the field to write, float32 of the same shapes. With None, the agent sees
            the result in place of `source`: the path is "agent.observation", or for a part of a
            Dict, for example, "agent.observation.position". The agent sees the other parts
            unchanged.
        clip: largest magnitude to write; infinity sets no limit.
        epsilon: added to the variance.

    Raises:
        ValueError: if an argument is outside its range. `bind` raises it if source and target
            differ in shape.
    """

    def __init__(
        self,
        source: str = "env.observation",
        target: str | None = None,
        # The defaults of `VecNormalize` of Stable-Baselines3, so that results can be compared.
        clip: float = 10.0,
        epsilon: float = 1e-8,
    ) -> None:
        name = "NormalizeObservations"
        if target is None:
            target = f"{SEEN}.{_part_below(source, RAW) or ''}".rstrip(".")
        if source == target:
            raise ValueError(
                f"{name}: target: expected a different field from source, got {target!r}"
            )
        self._source, self._target = source, target
        self.reads = (source,)
        # In final observations: the part to normalise, and where to put the result.
        taken, put = _part_below(source, RAW), _part_below(target, SEEN)
        self._taken = (put or "") if taken is None else taken
        self._put = self._taken if put is None else put
        self._clip = check_positive(name, "clip", clip)
        self._epsilon = check_finite_positive(name, "epsilon", epsilon)
        self._leaves: dict[str, LeafStatistics] = {}
        self._gather: Gather | None = None
        self._views = BatchMemo(self._views_of)

    def fields(self, samples: Samples) -> Mapping[str, Tree]:
        """Declare the target: a float32 field with padding 1 for each leaf of the source."""
        source = field_at(samples, self._source)
        return {
            self._target: buffer_map(
                lambda leaf: Field(np.zeros(leaf.shape[2:], np.float32), padding=1), source
            )
        }

    def _views_of(self, samples: Samples) -> tuple[list[LeafViews], NDArray[Any] | None]:
        source = field_at(samples, self._source)
        shapes = {path: tuple(leaf.shape[2:]) for path, leaf in buffer_leaves(source)}
        # Created once: the statistics continue with another buffer, and `load_state` may have made them.
        if not self._leaves:
            self._leaves = {path: self._leaf(path, shape) for path, shape in shapes.items()}
        known = {path: leaf.statistics.shape for path, leaf in self._leaves.items()}
        if known != shapes:
            raise ValueError(
                f"NormalizeObservations: {self._source}: expected {known}, got {shapes}"
            )
        views = [
            LeafViews(leaf, samples, _join(self._source, path), _join(self._target, path))
            for path, leaf in self._leaves.items()
        ]
        return views, optional_body_of(samples, "env.valid")

    def _leaf(self, path: str, shape: tuple[int, ...]) -> LeafStatistics:
        name = f"NormalizeObservations: {_join(self._source, path)}"
        statistics = RunningMeanStd(shape, name)
        statistics.gather = self._gather
        return LeafStatistics(statistics, self._clip, self._epsilon)

    def share_statistics(self, gather: Gather) -> None:
        """Compute mean and standard deviation from the observations of all learners."""
        self._gather = gather
        for leaf in self._leaves.values():
            leaf.statistics.gather = gather

    def transform_step(self, samples: Samples, t: int, columns: slice) -> None:
        """Write row `t` (0 to T) of `columns`, a slice without a step."""
        for views in self._views.of(samples)[0]:
            views.write(t, columns)

    def transform_final(self, observation: Tree) -> Tree:
        """Return a new tree with normalised leaves, float32 [N, ...], using the same statistics as steps."""
        leaves = self._leaves
        return self.with_leaves(observation, lambda path, array: leaves[path].normalized(array))

    @property
    def leaves(self) -> Mapping[str, LeafStatistics]:
        """Statistics, shift and scale of each leaf, by its dotted path below the normalised part."""
        return self._leaves

    def with_leaves(self, observation: Tree, normalize: Callable[[str, Any], Any]) -> Tree:
        """Return a new tree in which the agent's leaves are `normalize(path, leaf)`; paths as in `leaves`.

        `transform_final` does this with arrays, and an exported policy with tensors.
        """
        if not self._leaves:
            raise WrongStateError("NormalizeObservations: transform_final was called before bind")
        part = field_at(observation, self._taken)
        given = [path for path, _ in buffer_leaves(part)]
        if set(given) != set(self._leaves):
            raise ValueError(
                f"NormalizeObservations: observation: expected leaves {list(self._leaves)}, "
                f"got {given}"
            )
        # In the order of this observation, which may differ from that of the buffer.
        paths = iter(given)
        normalized = buffer_map(lambda leaf: normalize(next(paths), leaf), part)
        return _with_part(observation, self._put, normalized)

    def end_batch(self, samples: Samples) -> None:
        """Add the raw observations of the batch to the statistics."""
        leaves, valid = self._views.of(samples)
        mask = None if valid is None else valid.reshape(-1)
        for views in leaves:
            views.leaf.update(views.body, mask)

    @property
    def stats(self) -> dict[str, Any]:
        """Mean and standard deviation of each leaf; `position/mean`, for example, for a part of a Dict."""
        result: dict[str, Any] = {}
        for path, leaf in self._leaves.items():
            place = _join(self._taken, path)
            prefix = place.replace(".", "/") + "/" if place else ""
            result[prefix + "mean"] = leaf.statistics.mean.copy()
            result[prefix + "std"] = leaf.statistics.std
        return result

    def state(self) -> State:
        """Return the statistics of each leaf."""
        return {
            _join(self._source, path): leaf.statistics.state()
            for path, leaf in self._leaves.items()
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if the state belongs to different observations. Nothing is changed then.
        """
        leaves: dict[str, LeafStatistics] = {}
        for name, saved in state.items():
            path = name.removeprefix(self._source).removeprefix(".")
            # The shapes come from the state, as a checkpoint may be loaded before any buffer is known.
            leaves[path] = self._leaf(path, np.shape(saved["mean"]))
            leaves[path].load(saved)
        known = {path: leaf.statistics.shape for path, leaf in self._leaves.items()}
        given = {path: leaf.statistics.shape for path, leaf in leaves.items()}
        if known and known != given:
            raise ValueError(f"NormalizeObservations: state: expected {known}, got {given}")
        self._leaves = leaves
        # They hold the old leaves.
        self._views.forget()


def _join(path: str, below: str) -> str:
    return f"{path}.{below}" if path and below else path or below


def _part_below(path: str, root: str) -> str | None:
    """Return what follows `root` in a dotted path, "" if that is all of it; None for other paths."""
    if path == root:
        return ""
    return path.removeprefix(f"{root}.") if path.startswith(f"{root}.") else None


def _with_part(observation: Tree, path: str, value: Tree) -> Tree:
    """Return a tree with `value` at a dotted path, adding the part if there is none; "" is the whole."""
    if not path:
        return value
    name, _, rest = path.partition(".")
    fields = parts_of(observation) or {}
    fields = {**fields, name: _with_part(fields.get(name), rest, value) if rest else value}
    return observation._make(fields) if isinstance(observation, NamedTuple) else fields
