"""Experience cut into fragments, which a trainer can take from anywhere."""

from parllel.rollouts.env_worker import EnvWorker
from parllel.rollouts.episode_statistics import EpisodeStatistics
from parllel.rollouts.fragment_cutter import FragmentCutter
from parllel.rollouts.fragment_noise import FragmentNoise
from parllel.rollouts.fragment_sampler import FragmentSampler
from parllel.rollouts.fragment_sender import FragmentSender
from parllel.rollouts.local_rollouts import LocalRollouts
from parllel.rollouts.pipeline_monitor import PipelineMonitor
from parllel.rollouts.ready_schedule import ReadySchedule
from parllel.rollouts.replay_buffer import ReplayBuffer
from parllel.rollouts.replay_buffer_interface import ReplayBufferInterface
from parllel.rollouts.rollout_worker import RolloutWorker
from parllel.rollouts.rollouts import Rollouts
from parllel.rollouts.rows_schedule import RowsSchedule
from parllel.rollouts.sample_fragment import FragmentKey, SampleFragment
from parllel.rollouts.schedule import Schedule
from parllel.rollouts.step_collector import StepCollector
from parllel.rollouts.step_record import StepRecord
from parllel.rollouts.trainer import Trainer
from parllel.rollouts.worker_place import BuildWorker, WorkerPlace
from parllel.rollouts.worker_status import WorkerStatus
from parllel.rollouts.worker_thread import WorkerThread

__all__ = [
    "BuildWorker",
    "EnvWorker",
    "EpisodeStatistics",
    "FragmentCutter",
    "FragmentKey",
    "FragmentNoise",
    "FragmentSampler",
    "FragmentSender",
    "LocalRollouts",
    "PipelineMonitor",
    "ReadySchedule",
    "ReplayBuffer",
    "ReplayBufferInterface",
    "RolloutWorker",
    "Rollouts",
    "RowsSchedule",
    "SampleFragment",
    "Schedule",
    "StepCollector",
    "StepRecord",
    "Trainer",
    "WorkerPlace",
    "WorkerStatus",
    "WorkerThread",
]
