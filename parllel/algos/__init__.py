"""Learning algorithms: their interfaces, and transforms before learning. PPO is with its framework."""

from parllel.algos.algorithm import Algorithm
from parllel.algos.off_policy_algorithm import OffPolicyAlgorithm
from parllel.algos.transforming_algorithm import TransformingAlgorithm

__all__ = [
    "Algorithm",
    "OffPolicyAlgorithm",
    "TransformingAlgorithm",
]
