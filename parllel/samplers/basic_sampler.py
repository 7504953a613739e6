"""Sampling with environments that reset within the step that ends their episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from parllel.agents import Handler
from parllel.arrays import Array
from parllel.buffers import Samples, buffer_map, buffer_rotate
from parllel.cages import CageInterface, FinalObservation, TrajInfo
from parllel.samplers.cage_columns import CageColumns
from parllel.samplers.sampler import Sampler
from parllel.transforms import BatchTransform, StepTransform, Transform
from parllel.types import BatchSpec, State, Tree


class BasicSampler(Sampler):
    """Step all environments `T` times; the agent acts for all of them at once.

    Row t holds the observation, the agent's answer to it, and what followed. The value of the observation
    behind the batch, after the step transforms, goes to row T of `agent.agent_info.value`, and the values of
    truncated episodes' true last observations to `agent.final_value`.

    Args:
        batch_spec: T and B.
        cages: with automatic resets; B environments together.
        handler: of the agent; its buffer views are made here.
        samples: the buffer to fill, [T, B].
        step_transforms: applied in order to each row before the agent sees it.
        batch_transforms: applied in order to the finished batch.
        decorrelation_steps: before the first batch each environment takes a random number of random
            steps, up to this many, so that episodes do not end in step. They are no samples.
        decorrelation_seed: for those numbers; needed if `decorrelation_steps` is not 0.

    Raises:
        ValueError: if cages, buffer and batch spec do not fit.
    """

    def __init__(
        self,
        batch_spec: BatchSpec,
        cages: Sequence[CageInterface],
        handler: Handler,
        samples: Samples,
        step_transforms: Sequence[StepTransform] = (),
        batch_transforms: Sequence[BatchTransform] = (),
        *,
        decorrelation_steps: int = 0,
        decorrelation_seed: Any = None,
    ) -> None:
        check_samples(samples, batch_spec)
        if decorrelation_steps < 0:
            raise ValueError(f"decorrelation_steps: expected 0 or more, got {decorrelation_steps}")
        if decorrelation_steps and decorrelation_seed is None:
            raise ValueError("decorrelation_seed: expected a seed, as decorrelation_steps is not 0")
        self.batch_spec = batch_spec
        self.handler = handler
        self.samples = samples
        self.step_transforms = list(step_transforms)
        self.batch_transforms = list(batch_transforms)
        self._cages = CageColumns(cages, batch_spec.B, reset_automatically=True)
        self._all = slice(0, batch_spec.B)
        self._decorrelation = (decorrelation_steps, decorrelation_seed)
        self._started = False
        self._cages.bind(samples)
        handler.bind(samples)
        for transform in self._transforms:
            transform.bind(samples)

    def collect_batch(self, elapsed_steps: int) -> tuple[Samples, list[TrajInfo]]:
        """Fill the buffer with `T` further steps of every environment."""
        samples, handler, everyone = self.samples, self.handler, self._all
        T = self.batch_spec.T
        self._begin()
        handler.sample_mode()
        handler.start_batch()
        for t in range(T):
            for transform in self.step_transforms:
                transform.transform_step(samples, t, everyone)
            handler.step(t, everyone)
            self._cages.step(t)
        # The value behind the batch is that of the observation as the agent would see it.
        for transform in self.step_transforms:
            transform.transform_step(samples, T, everyone)
        handler.bootstrap_value(T, everyone)
        self._write_final_values()
        for transform in self.step_transforms:
            transform.end_batch(samples)
        for batch_transform in self.batch_transforms:
            batch_transform.transform_batch(samples)
        return samples, self._cages.completed_trajs()

    def _begin(self) -> None:
        if self._started:
            buffer_rotate(self.samples)  # the observation behind the last batch becomes row 0
            return
        self._cages.reset(0, everyone=True)
        most, seed = self._decorrelation
        if most:
            counts = np.random.default_rng(seed).integers(0, most + 1, self.batch_spec.B)
            self._cages.run(
                lambda cage, columns: cage.start_decorrelation(counts[columns].tolist())
            )
        self._started = True

    def _write_final_values(self) -> None:
        truncated = self.samples.env.truncated
        flags = np.asarray(truncated)
        final = [f for f in self._cages.final_observations() if flags[f.row, f.column]]
        if not final:
            return
        observation = stack_final(final, self.samples.env.observation)
        for transform in self.step_transforms:
            observation = transform.transform_final(observation)
        rows = np.array([f.row for f in final], np.intp)
        columns = np.array([f.column for f in final], np.intp)
        self.handler.final_value(rows, columns, observation)

    def state(self) -> State:
        """Return the state of the transforms, in order."""
        return {"transforms": [transform.state() for transform in self._transforms]}

    def load_state(self, state: State) -> None:
        """Take back what `state` returned; ValueError for another number of transforms."""
        states = state["transforms"]
        if len(states) != len(self._transforms):
            raise ValueError(f"expected {len(self._transforms)} transforms, got {len(states)}")
        for transform, one in zip(self._transforms, states, strict=True):
            transform.load_state(one)

    @property
    def stats(self) -> dict[str, Any]:
        """Return the `stats` of the transforms, as `Class/name`."""
        return {
            f"{type(transform).__name__}/{name}": value
            for transform in self._transforms
            for name, value in transform.stats.items()
        }

    @property
    def _transforms(self) -> list[Transform]:
        return [*self.step_transforms, *self.batch_transforms]

    def close(self) -> None:
        """Close the cages and the handler; may be called twice."""
        try:
            self._cages.close()
        finally:
            self.handler.close()


def stack_final(final: Sequence[FinalObservation], like: Tree) -> Tree:
    """Return the observations of `final` as one tree of arrays [N, ...] in the dtypes of `like`."""
    parts = [_named(f.observation) for f in final]
    return buffer_map(
        lambda array, *values: np.stack(values).astype(array.dtype, copy=False), like, *parts
    )


def _named(observation: Tree) -> Tree:
    """Give the items of tuples the names that they have in buffers."""
    if isinstance(observation, (tuple, list)):
        observation = {f"_{i}": part for i, part in enumerate(observation)}
    if isinstance(observation, dict):
        return {name: _named(part) for name, part in observation.items()}
    return np.asarray(observation)


def check_samples(samples: Samples, batch_spec: BatchSpec) -> None:
    """Raise TypeError or ValueError unless `samples` is a buffer [T, B]."""
    if not isinstance(samples, Samples):
        raise TypeError(f"samples: expected Samples(agent, env), got {type(samples).__name__}")
    reward = samples.env.reward
    if not isinstance(reward, Array) or reward.shape[:2] != batch_spec.shape:
        raise ValueError(f"samples: expected [T, B] = {batch_spec.shape}, env.reward is {reward!r}")
