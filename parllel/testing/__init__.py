"""Contract test suites, dummy environments and agents, and leak checks, for parllel and its extensions."""

from parllel.testing import assertions as _assertions  # noqa: F401 (before all others: see there)
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.faulty_envs import FaultyEnv
from parllel.testing.holdings import LeakError
from parllel.testing.leak_guard import LeakGuard
from parllel.testing.mock_kafka_broker import MockKafkaBroker
from parllel.testing.rock_paper_scissors_env import RockPaperScissorsEnv
from parllel.testing.sampler_contract import SamplerContract
from parllel.testing.services import Service

__all__ = [
    "CountingAgent",
    "CountingEnv",
    "FaultyEnv",
    "FrequencyPolicy",
    "LeakError",
    "LeakGuard",
    "MockKafkaBroker",
    "RockPaperScissorsEnv",
    "SamplerContract",
    "Service",
]
