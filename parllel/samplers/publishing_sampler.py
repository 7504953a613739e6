"""The interface of samplers whose policies have copies of the weights."""

from __future__ import annotations

from abc import abstractmethod

from parllel.agents.agent import Agent
from parllel.samplers.sampler import Sampler


class PublishingSampler(Sampler):
    """Fill batches by policies in other places, which act with the weights that were published last.

    Weights have a version. `stats` of the last batch say at least `staleness`, how many versions have been
    published since those of its oldest step, and `waited_s`, how many seconds the batch was waited for.
    """

    @abstractmethod
    def publish(self) -> int:
        """Hand out the agent's present weights; return their version."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Version of the weights that were published last; 0 is what the policies began with."""

    @property
    @abstractmethod
    def version_of_batch(self) -> int:
        """Version of the weights that chose the oldest step of the last batch."""

    @property
    @abstractmethod
    def agent(self) -> Agent | None:
        """The agent that is trained, whose weights are published."""
