"""Experience cut into fragments, which a trainer can take from anywhere."""

from parllel.rollouts.episode_statistics import EpisodeStatistics
from parllel.rollouts.fragment_cutter import FragmentCutter
from parllel.rollouts.fragment_sampler import FragmentSampler
from parllel.rollouts.pipeline_monitor import PipelineMonitor
from parllel.rollouts.replay_buffer import ReplayBuffer
from parllel.rollouts.replay_buffer_interface import ReplayBufferInterface
from parllel.rollouts.sample_fragment import FragmentKey, SampleFragment
from parllel.rollouts.step_record import StepRecord
from parllel.rollouts.trainer import Trainer

__all__ = [
    "EpisodeStatistics",
    "FragmentCutter",
    "FragmentKey",
    "FragmentSampler",
    "PipelineMonitor",
    "ReplayBuffer",
    "ReplayBufferInterface",
    "SampleFragment",
    "StepRecord",
    "Trainer",
]
