"""A low-level sampler framework for reinforcement learning."""

from parllel.errors import ParllelError
from parllel.seeding import Seeds
from parllel.types import BatchSpec

__all__ = ["BatchSpec", "ParllelError", "Seeds"]
