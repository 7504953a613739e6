"""A low-level sampler framework for reinforcement learning.

The names of a first build script, imported on first use. Everything else is in the packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.lazy_names import lazy_names as _lazy_names
from parllel.version import __version__ as __version__

if _TYPE_CHECKING:
    from parllel.cages.cage import Cage
    from parllel.cages.process_cage import ProcessCage
    from parllel.cages.synchronized_process_cage import SynchronizedProcessCage
    from parllel.cages.vectorized_cage import VectorizedCage
    from parllel.errors import ParllelError
    from parllel.policies.episodes import play_episodes
    from parllel.policies.policy_loading import load_policy
    from parllel.runners.off_policy_runner import OffPolicyRunner
    from parllel.runners.runner import OnPolicyRunner
    from parllel.samplers.basic_sampler import BasicSampler
    from parllel.samplers.eval_sampler import EvalSampler
    from parllel.samplers.recurrent_sampler import RecurrentSampler
    from parllel.seeding import Seeds
    from parllel.types import BatchSpec

__all__ = [
    "BasicSampler",
    "BatchSpec",
    "Cage",
    "EvalSampler",
    "OffPolicyRunner",
    "OnPolicyRunner",
    "ParllelError",
    "ProcessCage",
    "RecurrentSampler",
    "Seeds",
    "SynchronizedProcessCage",
    "VectorizedCage",
    "load_policy",
    "play_episodes",
]

__getattr__, __dir__ = _lazy_names(
    __name__,
    {
        "cages.cage": ("Cage",),
        "cages.process_cage": ("ProcessCage",),
        "cages.synchronized_process_cage": ("SynchronizedProcessCage",),
        "cages.vectorized_cage": ("VectorizedCage",),
        "errors": ("ParllelError",),
        "policies.episodes": ("play_episodes",),
        "policies.policy_loading": ("load_policy",),
        "runners.off_policy_runner": ("OffPolicyRunner",),
        "runners.runner": ("OnPolicyRunner",),
        "samplers.basic_sampler": ("BasicSampler",),
        "samplers.eval_sampler": ("EvalSampler",),
        "samplers.recurrent_sampler": ("RecurrentSampler",),
        "seeding": ("Seeds",),
        "types": ("BatchSpec",),
    },
)
