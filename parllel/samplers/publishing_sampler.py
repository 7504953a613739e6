"""Interface of samplers whose policies use published copies of the weights."""

from __future__ import annotations

from abc import abstractmethod

from parllel.agents.agent import Agent
from parllel.samplers.sampler import Sampler


class PublishingSampler(Sampler):
    """Sampler whose policies run in other processes and act with the most recently published weights.

    Weights have a version. After each batch, `stats` has at least `staleness`, the number of versions
    published since the version used for the batch's oldest step, and `waited_s`, the seconds spent
    waiting for the batch.
    """

    @abstractmethod
    def publish(self) -> int:
        """Publish the agent's current weights; return their version."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Version of the weights published last; 0 for the initial weights."""

    @property
    @abstractmethod
    def version_of_batch(self) -> int:
        """Version of the weights used for the oldest step of the last batch."""

    @property
    @abstractmethod
    def agent(self) -> Agent | None:
        """The agent being trained, whose weights are published."""
