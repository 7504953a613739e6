"""Rollout workers and learners on Ray, on one machine or many.

    trainer     RayRollouts --- weights, stop ----> RolloutManager (actor) --- starts, watches ---+
                RayEpisodeStatistics <--- episodes -- statistics actor <---------------+          |
                RayReplayBuffer <--- fragments ------ buffer actor <--- fragments --+  |          v
                                                                            RolloutWorkerWrapper (actors)

    trainer     RayLearners --- batch, learn, state ----> LearnerActor (actors)
                            <--- gradients, over TCP --->

`RayLearners` needs PyTorch too, the extra `torch`.

Raises:
    ImportError: if Ray is not installed, or is too old.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from parllel.errors import install_command as _install_command

try:
    import ray as _ray
except ModuleNotFoundError as error:
    # Ray is installed, but lacks a module: its own error says more.
    if error.name != "ray":
        raise
    raise ImportError(
        f"parllel.distributed.rollouts.on_ray needs Ray: {_install_command('rollouts')}"
    ) from error

# Before the imports below, so that an old Ray is named rather than what it lacks.
if tuple(int(part) for part in _ray.__version__.split(".")[:2]) < (2, 40):
    raise ImportError(
        f"parllel.distributed.rollouts.on_ray: expected Ray 2.40 or newer, got {_ray.__version__}: "
        "pip install --upgrade ray"
    )

from parllel.distributed.rollouts.on_ray.ray_episode_statistics import RayEpisodeStatistics
from parllel.distributed.rollouts.on_ray.ray_replay_buffer import RayReplayBuffer
from parllel.distributed.rollouts.on_ray.ray_rollouts import RayRollouts
from parllel.distributed.rollouts.on_ray.ray_session import RaySession
from parllel.distributed.rollouts.on_ray.worker_options import WorkerOptions
from parllel.lazy_names import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from parllel.distributed.rollouts.on_ray.ray_learners import RayLearners

__all__ = [
    "RayEpisodeStatistics",
    "RayLearners",
    "RayReplayBuffer",
    "RayRollouts",
    "RaySession",
    "WorkerOptions",
]

# Not imported above: actors of workers need no PyTorch.
__getattr__, __dir__ = _lazy_names(__name__, {"ray_learners": ("RayLearners",)}, "torch", ["torch"])
