"""Learning algorithms in PyTorch."""

from parllel.torch.algos.ppo import PPO
from parllel.torch.algos.ppo_inputs import PpoInputs

__all__ = ["PPO", "PpoInputs"]
