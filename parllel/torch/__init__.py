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

from parllel.torch.actor_critic_for import sac_agent_for, td3_agent_for
from parllel.torch.agent_for import agent_for, agents_for
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.independent_agents import IndependentAgents
from parllel.torch.agents.pg_agent import CategoricalPgAgent, GaussianPgAgent, PgAgent
from parllel.torch.agents.q_agent import QAgent, epsilon_ladder
from parllel.torch.agents.recurrent_pg_agent import RecurrentPgAgent
from parllel.torch.agents.recurrent_q_agent import RecurrentQAgent
from parllel.torch.agents.sac_agent import SacAgent
from parllel.torch.agents.td3_agent import TD3Agent
from parllel.torch.algos.behavior_cloning import BehaviorCloning
from parllel.torch.algos.dqn import DQN
from parllel.torch.algos.multi_agent_ppo import MultiAgentPPO
from parllel.torch.algos.ppo import PPO
from parllel.torch.algos.r2d1 import R2D1
from parllel.torch.algos.recurrent_ppo import RecurrentPPO
from parllel.torch.algos.sac import SAC
from parllel.torch.algos.td3 import TD3
from parllel.torch.cpu_sampling_handler import CpuSamplingHandler
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.distributions.ensemble import EnsembleDistribution
from parllel.torch.distributions.gaussian import Gaussian, GaussianParams
from parllel.torch.distributions.multi_discrete import MultiDiscrete
from parllel.torch.distributions.squashed_gaussian import SquashedGaussian
from parllel.torch.evaluate_policy import EvaluatePolicy
from parllel.torch.exports.export_policy import export_policy
from parllel.torch.exports.hub_folder import export_folder
from parllel.torch.exports.policy_module import PolicyModule
from parllel.torch.handler import TorchHandler
from parllel.torch.imports.cleanrl_agent import cleanrl_agent
from parllel.torch.imports.sb3_agent import sb3_agent
from parllel.torch.learners import Learners
from parllel.torch.models.actor_critic import CriticModel, PolicyModel
from parllel.torch.models.cnn_encoder import CONVOLUTIONS_2013, CnnEncoder
from parllel.torch.models.heads import CategoricalHead, GaussianHead, Head
from parllel.torch.models.mlp_model import MlpEncoder, MlpModel
from parllel.torch.models.pg_model import PgModel, PgOutput
from parllel.torch.models.q_model import QModel
from parllel.torch.models.recurrent_pg_model import RecurrentPgModel
from parllel.torch.models.recurrent_q_model import RecurrentQModel
from parllel.torch.models.shared_model import SharedModel
from parllel.torch.models.tree_encoder import TreeEncoder
from parllel.torch.q_agent_for import q_agent_for
from parllel.torch.small_policy_handler import SmallPolicyHandler

__all__ = [
    "CONVOLUTIONS_2013",
    "DQN",
    "PPO",
    "R2D1",
    "SAC",
    "TD3",
    "BehaviorCloning",
    "Categorical",
    "CategoricalHead",
    "CategoricalPgAgent",
    "CnnEncoder",
    "CpuSamplingHandler",
    "CriticModel",
    "Distribution",
    "EnsembleAgent",
    "EnsembleDistribution",
    "EvaluatePolicy",
    "Gaussian",
    "GaussianHead",
    "GaussianParams",
    "GaussianPgAgent",
    "Head",
    "IndependentAgents",
    "Learners",
    "MlpEncoder",
    "MlpModel",
    "MultiAgentPPO",
    "MultiDiscrete",
    "PgAgent",
    "PgModel",
    "PgOutput",
    "PolicyModel",
    "PolicyModule",
    "QAgent",
    "QModel",
    "RecurrentPPO",
    "RecurrentPgAgent",
    "RecurrentPgModel",
    "RecurrentQAgent",
    "RecurrentQModel",
    "SacAgent",
    "SharedModel",
    "SmallPolicyHandler",
    "SquashedGaussian",
    "TD3Agent",
    "TorchHandler",
    "TreeEncoder",
    "agent_for",
    "agents_for",
    "cleanrl_agent",
    "epsilon_ladder",
    "export_folder",
    "export_policy",
    "q_agent_for",
    "sac_agent_for",
    "sb3_agent",
    "td3_agent_for",
]
