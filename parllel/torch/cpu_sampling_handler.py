"""A handler that samples on the CPU with an agent that is trained on another device."""

from __future__ import annotations

import torch

from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.handler import TorchHandler


class CpuSamplingHandler(TorchHandler):
    """Let a copy of the agent on the CPU sample, while the agent itself is trained elsewhere.

    Small models act on the CPU in less time than it takes to move observations to a GPU and actions back.
    The copy gets the agent's parameters at the start of each batch and of each evaluation.

    Args:
        agent: what is trained, on any device. Its noise, its recurrent state and its checkpoints are as they
            would be without this handler.

    Raises:
        TypeError: if the agent is not a PgAgent.
    """

    def __init__(self, agent: PgAgent) -> None:
        if not isinstance(agent, PgAgent):
            raise TypeError(
                f"CpuSamplingHandler: agent: expected a PgAgent, got {type(agent).__name__}; "
                "TorchHandler takes any agent"
            )
        self.trained = agent
        twin = agent.copy_to_device("cpu")
        # Checkpoints ask the handler's agent, but between two batches only the trained model is up to date.
        twin.trained = agent
        super().__init__(twin)

    def start_batch(self) -> None:
        """Copy the parameters, then do what every handler does."""
        self.update_parameters()
        super().start_batch()

    def eval_mode(self) -> None:
        """Copy the parameters, then let the copy of the agent exploit."""
        self.update_parameters()
        super().eval_mode()

    @torch.no_grad()
    def update_parameters(self) -> None:
        """Copy parameters and buffers from the trained model to the one that samples."""
        # Not `parameters()`: statistics such as those of a batch norm are buffers.
        source = self.trained.model.state_dict()
        for name, tensor in self.agent.model.state_dict().items():  # type: ignore[attr-defined]
            tensor.copy_(source[name])
