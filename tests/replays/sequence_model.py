"""Sequences as lists of steps in plain Python, and a writer that fills a buffer as samplers do.

The recurrent state of the simulated agent counts the steps since the reset, and mixes what the agent has
seen, so a state that belongs to another step, or to another history, is another state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    NamedArrayTuple,
    Samples,
    add_fields,
    allocate,
    insert_field,
)
from parllel.buffers.tree import buffer_arrays
from parllel.types import BatchSpec

START = (0.0, 0.0)


def next_state(state: Any, number: float, previous_action: int) -> tuple[float, float]:
    """Return the state of the agent after it has seen an observation and the action before it."""
    count, mix = float(state[0]), float(state[1])
    return count + 1, (3 * mix + number + 101 * previous_action) % 1009


@dataclass
class Setup:
    """What a buffer and its environments are like.

    Attributes:
        waits: whether environments wait for the next batch to be reset.
        crashes: whether steps are lost.
        interrupts: whether environments are reset between batches.
        own: whether the writer writes into the replay's own buffer.
        stores_previous: whether the agent stores its previous actions.
    """

    T: int = 3
    B: int = 2
    N: int = 6
    k: int = 0
    waits: bool = True
    crashes: bool = False
    interrupts: bool = False
    own: bool = True
    stores_previous: bool = False
    p_end: float = 0.2
    seed: int = 0

    @property
    def marks_valid(self) -> bool:
        """Whether there is a field env.valid."""
        return self.waits or self.crashes


@dataclass
class Step:
    """One row of one environment. `usable` is False where no step was taken, or its outcome was lost."""

    number: float
    action: int = 0
    previous_action: int = 0
    reward: np.float32 = field(default_factory=lambda: np.float32(0))
    before: tuple[float, float] = START  # states
    after: tuple[float, float] = START
    following: float = 0.0  # number of the true observation after it
    terminated: bool = False
    truncated: bool = False
    usable: bool = False

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass
class Position:
    """One position of a sequence; `step` is None where it holds only an observation."""

    number: float
    state: tuple[float, float]
    previous_action: int
    reset: bool
    step: Step | None = None


def sequence_from(rows: list[Step]) -> list[Position]:
    """Return all positions of a sequence that begins with the first of the rows of one column."""
    positions: list[Position] = []
    last: Step | None = None  # the step before, if its episode goes on
    reset = False
    for row in rows:
        if not row.usable:
            if last is not None:
                positions.append(Position(row.number, last.after, last.action, False))
            last, reset = None, True
            continue
        positions.append(Position(row.number, row.before, row.previous_action, reset, row))
        if row.truncated and not row.terminated:
            positions.append(Position(row.following, row.after, row.action, False))
        last, reset = (None, True) if row.ended else (row, False)
    if last is not None:
        positions.append(Position(last.following, last.after, last.action, False))
    return positions


class Writer:
    """Writes batches of simulated environments and a recurrent agent."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.rng = np.random.default_rng(setup.seed)
        self._numbers = 0.0
        self.memory = make_buffer(setup, setup.N)
        # Where the batches are written: the memory itself, or a buffer of one batch.
        self.samples = self.memory if setup.own else make_buffer(setup, 1)
        self.steps: list[list[Step]] = [[] for _ in range(setup.B)]
        # Columns in which the newest batch does not follow from the one before.
        self.broken = np.zeros(setup.B, bool)
        self._begun = False
        self._number = np.zeros(setup.B)
        self._stacks: list[Any] = [None] * setup.B
        self._state = [START] * setup.B
        self._previous = [0] * setup.B
        self._waiting = np.ones(setup.B, bool)

    def _observe(self, b: int, *, reset: bool) -> None:
        """Make the next observation of an environment."""
        self._numbers += 1
        self._number[b] = self._numbers
        frame = np.full(2, self._numbers, np.float32)
        k = self.setup.k
        if not k:
            self._stacks[b] = frame
        elif reset:
            self._stacks[b] = np.stack([frame] * k)
        else:
            self._stacks[b] = np.concatenate([self._stacks[b][1:], frame[None]])
        if reset:
            self._state[b], self._previous[b], self._waiting[b] = START, 0, False

    def write_batch(self) -> Samples:
        """Write the next batch, and return it."""
        s, samples, rng = self.setup, self.samples, self.rng
        if self._begun:
            for array in buffer_arrays(samples):
                array.rotate()
        env, agent = samples.env, samples.agent
        for name in ("reward", "terminated", "truncated", "done"):
            getattr(env, name)[...] = 0
        if s.marks_valid:
            env.valid[...] = False
        self.broken[:] = False
        for b in range(s.B):
            if s.interrupts and self._begun and not self._waiting[b] and rng.random() < 0.3:
                last = self.steps[b][-1]
                if last.usable and not last.ended:
                    self.broken[b] = True
                    # Of a batch in other memory, the observation after it has been there to copy.
                    last.usable, last.truncated = not s.own, not s.own
                self._waiting[b] = True
            if self._waiting[b]:
                self._observe(b, reset=True)
            env.observation[0, b] = self._stacks[b]
            for i in range(2):
                agent.initial_rnn_state[0, b, i] = self._state[b][i]
        self._begun = True
        for t in range(s.T):
            for b in range(s.B):
                self._write_row(t, b)
        return samples

    def _write_row(self, t: int, b: int) -> None:
        s, env, agent, rng = self.setup, self.samples.env, self.samples.agent, self.rng
        steps = self.steps[b]
        if self._waiting[b]:
            steps.append(Step(self._number[b]))
            return
        if s.crashes and rng.random() < 0.15:
            before = steps[-1] if steps else None
            if t and before is not None and before.usable and not before.ended:
                before.truncated = True
                env.truncated[t - 1, b] = env.done[t - 1, b] = True
                agent.final_observation[t - 1, b] = self._stacks[b]
            steps.append(Step(self._number[b]))
            self._end(t, b)
            return
        step = Step(self._number[b], usable=True)
        step.before, step.previous_action = self._state[b], self._previous[b]
        step.action = int(rng.integers(1, 10))
        step.reward = np.float32(rng.normal())
        step.after = next_state(step.before, step.number, step.previous_action)
        step.terminated = bool(rng.random() < s.p_end / 2)
        step.truncated = bool(rng.random() < s.p_end / 2)
        steps.append(step)
        agent.action[t, b] = step.action
        if s.stores_previous:
            agent.agent_info.prev_action[t, b] = step.previous_action
        env.reward[t, b] = step.reward
        if s.marks_valid:
            env.valid[t, b] = True
        env.terminated[t, b], env.truncated[t, b] = step.terminated, step.truncated
        env.done[t, b] = step.ended
        self._state[b], self._previous[b] = step.after, step.action
        self._observe(b, reset=False)
        step.following = self._number[b]
        if step.truncated:
            agent.final_observation[t, b] = self._stacks[b]
        if step.ended:
            self._end(t, b)
        else:
            env.observation[t + 1, b] = self._stacks[b]

    def _end(self, t: int, b: int) -> None:
        """Reset the environment, or let it wait for the next batch."""
        if self.setup.waits:
            self._waiting[b] = True
        else:
            self._observe(b, reset=True)
            self.samples.env.observation[t + 1, b] = self._stacks[b]


def make_buffer(setup: Setup, n_batches: int) -> Samples:
    """Allocate a buffer of `n_batches` batches."""
    s, spec = setup, BatchSpec(setup.T, setup.B)
    cell: NDArray[Any] = np.zeros((s.k, 2) if s.k else 2, np.float32)
    info = NamedArrayTuple(prev_action=np.int64(0)) if s.stores_previous else None
    samples: Any = allocate(
        Samples(
            agent=AgentSamples(
                action=np.int64(0),
                agent_info=info,
                final_observation=Field(cell, current_batch_only=True),
            ),
            env=EnvSamples(
                observation=Field(cell, padding=1, frames=s.k),
                reward=np.float32(0),
                terminated=False,
                truncated=False,
                done=False,
                env_info=None,
                **({"valid": False} if s.marks_valid else {}),
            ),
        ),
        spec,
        batches=n_batches,
    )
    state = {"agent.initial_rnn_state": np.zeros(2, np.float32)}
    samples = add_fields(samples, state, BatchSpec(1, s.B), batches=n_batches)
    return insert_field(samples, "agent.observation", samples.env.observation)
