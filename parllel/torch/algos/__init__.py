"""Learning algorithms in PyTorch."""

from parllel.torch.algos.behavior_cloning import BehaviorCloning
from parllel.torch.algos.multi_agent_ppo import MultiAgentPPO
from parllel.torch.algos.ppo import PPO
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.algos.recurrent_ppo import RecurrentPPO

__all__ = ["PPO", "BehaviorCloning", "MultiAgentPPO", "PpoInputs", "RecurrentPPO"]
