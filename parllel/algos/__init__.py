"""Learning algorithms: the interface. Implementations live with their framework."""

from parllel.algos.algorithm import Algorithm

__all__ = ["Algorithm"]
