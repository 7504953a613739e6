"""A low-level sampler framework for reinforcement learning."""

from parllel.errors import ParllelError
from parllel.seeding import Seeds
from parllel.types import BatchSpec
from parllel.version import __version__ as __version__

__all__ = ["BatchSpec", "ParllelError", "Seeds"]
