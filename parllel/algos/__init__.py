"""Learning algorithms: the interface, and transforms before learning. PPO is with its framework."""

from parllel.algos.algorithm import Algorithm
from parllel.algos.transforming_algorithm import TransformingAlgorithm

__all__ = [
    "Algorithm",
    "TransformingAlgorithm",
]
