"""Learning algorithms in PyTorch."""

from parllel.torch.algos.ppo import PPO
from parllel.torch.algos.ppo_inputs import PpoInputs
from parllel.torch.algos.recurrent_ppo import RecurrentPPO

__all__ = ["PPO", "PpoInputs", "RecurrentPPO"]
