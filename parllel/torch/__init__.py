"""Agents, models and algorithms in PyTorch.

Raises:
    ImportError: if PyTorch is not installed.
"""

from parllel.errors import install_command as _install_command

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError(f"parllel.torch needs PyTorch: {_install_command('torch')}") from error

from parllel.torch.agent_for import agent_for, agents_for, distribution_for, encoder_for
from parllel.torch.agents import (
    CategoricalPgAgent,
    EnsembleAgent,
    GaussianPgAgent,
    IndependentAgents,
    PgAgent,
    RecurrentPgAgent,
)
from parllel.torch.algos import PPO, BehaviorCloning, MultiAgentPPO, RecurrentPPO
from parllel.torch.cpu_sampling_handler import CpuSamplingHandler
from parllel.torch.distributions import (
    Categorical,
    Distribution,
    EnsembleDistribution,
    Gaussian,
    MultiDiscrete,
)
from parllel.torch.evaluate_policy import EvaluatePolicy
from parllel.torch.handler import TorchHandler
from parllel.torch.models import (
    CONVOLUTIONS_2013,
    CONVOLUTIONS_2015,
    CONVOLUTIONS_SMALL,
    CategoricalHead,
    CnnEncoder,
    Convolutions,
    GaussianHead,
    MlpModel,
    PgModel,
    RecurrentPgModel,
    SharedModel,
    TreeEncoder,
)
from parllel.torch.small_policy_handler import SmallPolicyHandler
from parllel.torch.state_dict_file import read_state_dict

__all__ = [
    "CONVOLUTIONS_2013",
    "CONVOLUTIONS_2015",
    "CONVOLUTIONS_SMALL",
    "PPO",
    "BehaviorCloning",
    "Categorical",
    "CategoricalHead",
    "CategoricalPgAgent",
    "CnnEncoder",
    "Convolutions",
    "CpuSamplingHandler",
    "Distribution",
    "EnsembleAgent",
    "EnsembleDistribution",
    "EvaluatePolicy",
    "Gaussian",
    "GaussianHead",
    "GaussianPgAgent",
    "IndependentAgents",
    "MlpModel",
    "MultiAgentPPO",
    "MultiDiscrete",
    "PgAgent",
    "PgModel",
    "RecurrentPPO",
    "RecurrentPgAgent",
    "RecurrentPgModel",
    "SharedModel",
    "SmallPolicyHandler",
    "TorchHandler",
    "TreeEncoder",
    "agent_for",
    "agents_for",
    "distribution_for",
    "encoder_for",
    "read_state_dict",
]
