"""Experience cut into fragments, which a trainer can take from anywhere."""

from parllel.rollouts.env_worker import EnvWorker
from parllel.rollouts.episode_statistics import EpisodeStatistics
from parllel.rollouts.fragment_cutter import FragmentCutter
from parllel.rollouts.fragment_noise import FragmentNoise
from parllel.rollouts.fragment_sampler import FragmentSampler
from parllel.rollouts.fragment_sender import FragmentSender
from parllel.rollouts.pipeline_monitor import PipelineMonitor
from parllel.rollouts.ready_schedule import ReadySchedule
from parllel.rollouts.replay_buffer import ReplayBuffer
from parllel.rollouts.replay_buffer_interface import ReplayBufferInterface
from parllel.rollouts.rollout_worker import RolloutWorker
from parllel.rollouts.rows_schedule import RowsSchedule
from parllel.rollouts.sample_fragment import FragmentKey, SampleFragment
from parllel.rollouts.schedule import Schedule
from parllel.rollouts.step_collector import StepCollector
from parllel.rollouts.step_record import StepRecord
from parllel.rollouts.trainer import Trainer
from parllel.rollouts.worker_thread import WorkerThread

__all__ = [
    "EnvWorker",
    "EpisodeStatistics",
    "FragmentCutter",
    "FragmentKey",
    "FragmentNoise",
    "FragmentSampler",
    "FragmentSender",
    "PipelineMonitor",
    "ReadySchedule",
    "ReplayBuffer",
    "ReplayBufferInterface",
    "RolloutWorker",
    "RowsSchedule",
    "SampleFragment",
    "Schedule",
    "StepCollector",
    "StepRecord",
    "Trainer",
    "WorkerThread",
]
