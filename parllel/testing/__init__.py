"""What tests of parllel and of parts written for it share."""

from parllel.system.processes import (
    ProcessEntry,
    command_of,
    descendants,
    process_entry,
    process_runs,
)
from parllel.testing import assertions as _assertions  # noqa: F401 (before all others: see there)
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.dummy_transforms import RecordingBatchTransform, RecordingStepTransform
from parllel.testing.faulty_envs import CrowdedEnv, DummyFaultError, FaultyEnv, MalformedEnv
from parllel.testing.holdings import LeakError
from parllel.testing.leak_guard import LeakGuard
from parllel.testing.mock_kafka_broker import MockKafkaBroker
from parllel.testing.private_memory import private_memory
from parllel.testing.rock_paper_scissors_env import RockPaperScissorsEnv
from parllel.testing.sampler_contract import SamplerContract
from parllel.testing.sampler_setup import CagesOf, SamplerParts, SamplerSetup, make_sampler
from parllel.testing.services import Service
from parllel.testing.simulated_batches import SimulatedBatch, simulate

__all__ = [
    "CagesOf",
    "CountingAgent",
    "CountingEnv",
    "CrowdedEnv",
    "DummyFaultError",
    "FaultyEnv",
    "FrequencyPolicy",
    "LeakError",
    "LeakGuard",
    "MalformedEnv",
    "MockKafkaBroker",
    "ProcessEntry",
    "RecordingBatchTransform",
    "RecordingStepTransform",
    "RockPaperScissorsEnv",
    "SamplerContract",
    "SamplerParts",
    "SamplerSetup",
    "Service",
    "SimulatedBatch",
    "command_of",
    "descendants",
    "make_sampler",
    "private_memory",
    "process_entry",
    "process_runs",
    "simulate",
]
