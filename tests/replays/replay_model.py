"""A replay as a list of steps in plain Python, and a writer that fills a buffer as samplers do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parllel.buffers import AgentSamples, EnvSamples, Field, Samples, allocate, insert_field
from parllel.buffers.tree import buffer_arrays, buffer_leaves
from parllel.types import BatchSpec


@dataclass
class Setup:
    """What a buffer and its environments are like.

    Attributes:
        k: frames in a stack, 0 for observations that are not stacks.
        layout: "array", "dict" or "tuple" of observations and actions.
        zeros: whether stacks begin with zeros; otherwise with repetitions of the first frame.
        valid: whether there is a field env.valid, and steps that are not in it.
        own: whether the writer writes into the replay's own buffer.
        interrupts: whether environments are reset between batches.
    """

    T: int = 3
    B: int = 2
    N: int = 3
    padding: int = 1
    k: int = 0
    layout: str = "array"
    zeros: bool = False
    valid: bool = False
    own: bool = True
    interrupts: bool = False
    p_end: float = 0.3
    seed: int = 0

    def cell(self) -> tuple[int, ...]:
        return (self.k, 2) if self.k else (3,)


@dataclass
class Step:
    """One step of one environment."""

    observation: Any
    action: int
    reward: np.float32
    following: Any = None  # the true observation after it
    terminated: bool = False
    truncated: bool = False
    usable: bool = True


@dataclass
class Model:
    """All steps that were ever added, by column, and what may be drawn of them."""

    setup: Setup
    n_step: int
    discount: float
    steps: list[list[Step]] = field(default_factory=list)

    def drawable(self) -> dict[float, tuple[int, int]]:
        """Return row and column of each transition that may be drawn, keyed by its newest number."""
        s, n_rows = self.setup, len(self.steps[0])
        stored = min(n_rows, s.N * s.T)
        oldest = n_rows - stored + (max(s.k, 1) if stored == s.N * s.T else 0)
        return {
            number_of(self.steps[b][a].observation): (a, b)
            for a in range(oldest, n_rows - (self.n_step - 1))
            for b in range(s.B)
            if self.steps[b][a].usable
        }

    def transition(self, a: int, b: int) -> tuple[np.float32, np.float32, Any]:
        """Return reward, discount and next observation; None for one that does not count."""
        total, factor, steps = 0.0, 1.0, self.steps[b]
        for i in range(self.n_step):
            step = steps[a + i]
            total += factor * float(step.reward)
            factor *= self.discount
            if step.terminated:
                return np.float32(total), np.float32(0), None
            if step.truncated or i + 1 == self.n_step or not steps[a + i + 1].usable:
                break
        return np.float32(total), np.float32(factor), step.following


def number_of(observation: Any) -> float:
    """Return the number that tells an observation from all others."""
    return float(np.asarray(observation).reshape(-1)[-1])


class Writer:
    """Writes batches of simulated environments into a buffer, and into a model."""

    def __init__(self, setup: Setup, model: Model) -> None:
        self.setup, self.model = setup, model
        model.steps = [[] for _ in range(setup.B)]
        self.rng = np.random.default_rng(setup.seed)
        self._numbers = 0.0
        self.memory = make_buffer(setup, setup.N)
        # Where the batches are written: the memory itself, or a buffer of one batch.
        self.samples = self.memory if setup.own else make_buffer(setup, 1)
        self._begun = False
        self._now = [self._reset() for _ in range(setup.B)]

    def _frame(self) -> Any:
        self._numbers += 1
        return np.full(self.setup.cell()[-1], self._numbers, np.float32)

    def _reset(self) -> Any:
        s, frame = self.setup, self._frame()
        if not s.k:
            return frame
        stack = np.zeros(s.cell(), np.float32)
        stack[:] = 0 if s.zeros else frame
        stack[-1] = frame
        return stack

    def _after(self, observation: Any) -> Any:
        frame = self._frame()
        return np.concatenate([observation[1:], frame[None]]) if self.setup.k else frame

    def write_batch(self) -> Samples:
        """Write the next batch, and return it."""
        s, samples, rng = self.setup, self.samples, self.rng
        if self._begun:
            for array in buffer_arrays(samples):
                array.rotate()
        for b in range(s.B):
            steps = self.model.steps[b]
            if s.interrupts and self._begun and rng.random() < 0.4:
                last = steps[-1]
                if last.usable and not (last.terminated or last.truncated):
                    # Of a batch in other memory, the observation after it has been there to copy.
                    last.usable, last.truncated = s.own is False, s.own is False
                self._now[b] = self._reset()
        for b in range(s.B):
            self._put(samples.agent.observation, 0, b, self._now[b])
        self._begun = True
        for t in range(s.T):
            for b in range(s.B):
                self._write_step(t, b)
        return samples

    def _write_step(self, t: int, b: int) -> None:
        s, samples, rng = self.setup, self.samples, self.rng
        steps = self.model.steps[b]
        step = Step(self._now[b], int(rng.integers(1000)), np.float32(rng.normal()))
        lost = s.valid and rng.random() < 0.2
        if lost:
            step.usable = False
            before = steps[-1] if steps else None
            goes_on = before is not None and not (before.terminated or before.truncated)
            if t and before is not None and before.usable and goes_on:
                # As a sampler marks the end of an episode that a crash has cut.
                before.truncated = True
                self._put(samples.agent.final_observation, t - 1, b, before.following)
                samples.env.truncated[t - 1, b] = samples.env.done[t - 1, b] = True
            after = self._reset()
        else:
            following = step.following = self._after(self._now[b])
            step.terminated = bool(rng.random() < s.p_end / 2)
            step.truncated = bool(rng.random() < s.p_end / 2)
            ended = step.terminated or step.truncated
            if step.truncated:
                self._put(samples.agent.final_observation, t, b, following)
            after = self._reset() if ended else following
        steps.append(step)
        self._put(samples.agent.action, t, b, step.action)
        samples.env.reward[t, b] = step.reward
        samples.env.terminated[t, b] = step.terminated
        samples.env.truncated[t, b] = step.truncated
        samples.env.done[t, b] = step.terminated or step.truncated
        if s.valid:
            samples.env.valid[t, b] = not lost
        self._now[b] = after
        self._put(samples.agent.observation, t + 1, b, after)

    def _put(self, node: Any, t: int, b: int, value: Any) -> None:
        for _, leaf in buffer_leaves(node):
            # The second leaf of an observation holds a part of each number of the first.
            leaf[t, b] = value[..., : leaf.shape[-1]] if np.ndim(value) else value


def nested(layout: str, leaf: Any, other: Any) -> Any:
    """Return a tree of a layout with two leaves, or `leaf`."""
    return {"array": leaf, "dict": {"x": leaf, "y": other}, "tuple": (leaf, other)}[layout]


def make_buffer(setup: Setup, n_batches: int) -> Samples:
    """Allocate a buffer of `n_batches` batches."""
    s, spec = setup, BatchSpec(setup.T, setup.B)
    cell = np.zeros(s.cell(), np.float32)
    # The second leaf has another dtype, in words of another size.
    one = Field(cell, padding=s.padding, frames=s.k)
    seen = nested(s.layout, one, Field(cell.astype(np.int16)[..., :1], padding=1))
    kept = nested(
        s.layout,
        Field(cell, current_batch_only=True),
        Field(cell.astype(np.int16)[..., :1], current_batch_only=True),
    )
    action = nested(s.layout, np.int64(0), np.float64(0))
    valid = {"valid": False} if s.valid else {}
    return buffer_of(spec, seen, kept, n_batches, action, **valid)


def buffer_of(
    spec: BatchSpec,
    observation: Any,
    final_observation: Any,
    n_batches: int,
    action: Any = 0,
    **env: Any,
) -> Samples:
    """Allocate a buffer for an observation and an action, with further fields of environments."""
    samples: Any = allocate(
        Samples(
            agent=AgentSamples(action=action, agent_info=None, final_observation=final_observation),
            env=EnvSamples(
                observation=observation,
                reward=np.float32(0),
                terminated=False,
                truncated=False,
                done=False,
                env_info=None,
                **env,
            ),
        ),
        spec,
        batches=n_batches,
    )
    return insert_field(samples, "agent.observation", samples.env.observation)
