"""Step transforms that remember something of their columns, or learn something from them."""

from __future__ import annotations

import numpy as np

from parllel.buffers import Field
from parllel.buffers.paths import field_at
from parllel.transforms import StepTransform


class Difference(StepTransform):
    """Show the agent by how much an observation differs from the one before it, 0 where episodes begin."""

    def __init__(self, source="env.observation"):
        self.source = source
        self.reads = (source,)

    def fields(self, samples):
        like = field_at(samples, self.source)
        return {"agent.observation": Field(np.zeros(like.shape[2:], like.dtype), padding=1)}

    def bind(self, samples):
        field = field_at(samples, self.source)
        self.carried = np.zeros((field.shape[1], *field.shape[2:]), field.dtype)

    def transform_step(self, samples, t, columns):
        source, done = field_at(samples, self.source), np.asarray(samples.env.done)
        target = np.asarray(samples.agent.observation[t, columns])
        if t == 0:
            target[...] = self.carried[columns]
            return
        now, before = (np.asarray(source[row, columns]) for row in (t, t - 1))
        began = done[t - 1, columns].reshape(-1, *[1] * (now.ndim - 1))
        target[...] = np.where(began, 0, now - before)
        if t == len(done):
            # Row 0 of the next batch shows the same observation.
            self.carried[columns] = target

    def transform_final(self, observation):
        return observation

    def forget(self, columns):
        self.carried[columns] = 0


class Centre(StepTransform):
    """Show the agent observations minus their mean, and remember the last row of each column."""

    reads = ("env.observation",)
    shared = ("mean", "count")

    def fields(self, samples):
        cell = np.zeros(samples.env.observation.shape[2:], np.float32)
        return {"agent.observation": Field(cell, padding=1)}

    def bind(self, samples):
        shape = samples.env.observation.shape
        self.mean, self.count, self.last = np.zeros(shape[2:]), 0, np.zeros(shape[1:])

    def transform_step(self, samples, t, columns):
        raw = np.asarray(samples.env.observation[t, columns])
        np.asarray(samples.agent.observation[t, columns])[...] = raw - self.mean

    def transform_final(self, observation):
        return (observation - self.mean).astype(np.float32)

    def end_batch(self, samples):
        body = np.asarray(samples.env.observation)
        rows = body[np.asarray(samples.env.valid)]
        self.count += len(rows)
        if len(rows):
            self.mean = self.mean + (rows - self.mean).sum(axis=0) / self.count
        self.last = np.array(body[-1])

    def state(self):
        return {"mean": self.mean.copy(), "count": self.count, "last": self.last.copy()}

    def load_state(self, state):
        self.mean, self.count, self.last = state["mean"], state["count"], state["last"]
