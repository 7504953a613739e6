"""Handler that samples on the CPU while the agent is trained on another device."""

from __future__ import annotations

import torch

from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.handler import TorchHandler
from parllel.types import class_path


class CpuSamplingHandler(TorchHandler):
    """Samples with a copy of the agent on the CPU, while the agent itself is trained on another device.

    For small models, acting on the CPU is faster than moving observations to a GPU and actions back.
    The copy gets the agent's parameters at the start of each batch and of each evaluation.

    Args:
        agent: the agent to train, on any device. Its noise, recurrent state and checkpoints are the same as
            without this handler.

    Raises:
        TypeError: if the agent is neither a PgAgent nor a QAgent.
    """

    def __init__(self, agent: PgAgent | QAgent) -> None:
        if not isinstance(agent, (PgAgent, QAgent)):
            raise TypeError(
                f"CpuSamplingHandler: agent: expected a PgAgent or QAgent of parllel.torch, got "
                f"a {class_path(agent)}. Use TorchHandler for other agents in PyTorch, and NumpyHandler for "
                "agents in NumPy or JAX"
            )
        self.trained = agent
        twin = agent.copy_to_device("cpu")
        # Checkpoints save the handler's agent, but between batches only the trained model is up to date.
        twin.trained = agent  # type: ignore[assignment]
        super().__init__(twin)

    def start_batch(self) -> None:
        """Copy the parameters, then start the batch as TorchHandler does."""
        self.update_parameters()
        super().start_batch()

    def eval_mode(self) -> None:
        """Copy the parameters, then switch the copy to eval mode."""
        self.update_parameters()
        super().eval_mode()

    @torch.no_grad()
    def update_parameters(self) -> None:
        """Copy parameters and buffers from the trained model to the model used for sampling."""
        # Not `parameters()`: statistics such as batch norm's are buffers.
        source = self.trained.model.state_dict()
        for name, tensor in self.agent.model.state_dict().items():  # type: ignore[attr-defined]
            tensor.copy_(source[name])
