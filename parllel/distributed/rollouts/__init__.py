"""Distributed rollouts: workers send fragments of experience, and a trainer learns from them."""

# `on_ray` is not imported here: everything below must work, and is tested, without Ray.

from parllel.distributed.rollouts.asynchronous_schedule import AsynchronousSchedule
from parllel.distributed.rollouts.env_worker import EnvWorker
from parllel.distributed.rollouts.episode_statistics import EpisodeStatistics
from parllel.distributed.rollouts.fragment_sampler import FragmentSampler
from parllel.distributed.rollouts.fragments.fragment_cutter import FragmentCutter
from parllel.distributed.rollouts.fragments.fragment_sender import FragmentSender
from parllel.distributed.rollouts.fragments.replay_buffer import ReplayBuffer
from parllel.distributed.rollouts.fragments.replay_buffer_interface import ReplayBufferInterface
from parllel.distributed.rollouts.fragments.sample_fragment import SampleFragment
from parllel.distributed.rollouts.on_this_machine.local_rollouts import LocalRollouts
from parllel.distributed.rollouts.on_this_machine.process_rollouts import ProcessRollouts
from parllel.distributed.rollouts.pipeline_monitor import PipelineMonitor
from parllel.distributed.rollouts.rollout_worker import RolloutWorker, WorkerContext
from parllel.distributed.rollouts.rollouts import Rollouts
from parllel.distributed.rollouts.schedule import Schedule, SynchronousSchedule
from parllel.distributed.rollouts.step_record import StepRecord
from parllel.distributed.rollouts.trainer import Trainer
from parllel.distributed.rollouts.worker_status import WorkerStatus

__all__ = [
    "AsynchronousSchedule",
    "EnvWorker",
    "EpisodeStatistics",
    "FragmentCutter",
    "FragmentSampler",
    "FragmentSender",
    "LocalRollouts",
    "PipelineMonitor",
    "ProcessRollouts",
    "ReplayBuffer",
    "ReplayBufferInterface",
    "RolloutWorker",
    "Rollouts",
    "SampleFragment",
    "Schedule",
    "StepRecord",
    "SynchronousSchedule",
    "Trainer",
    "WorkerContext",
    "WorkerStatus",
]
