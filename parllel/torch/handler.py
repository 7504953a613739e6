"""Handler for agents that compute in PyTorch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.agents.agent import Agent
from parllel.agents.bound_samples import StepViews
from parllel.agents.handler import Handler
from parllel.buffers.named_tuple import NamedTuple
from parllel.torch.agents.q_agent import QAgent, explore
from parllel.torch.known_models import (
    Act,
    act_of,
    action_values_of,
    known_agent,
    known_q_model,
)

# PyTorch's default of one thread per core makes training of small networks two to six times as slow as
# a single thread: operations take less time than their threads need to synchronise, and on a busy machine
# all wait for the slowest. The setting is per process, so it is chosen once for all models.
_SMALL = 200_000  # parameters: two networks with two layers of 256 units are below
_BY_ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Read at import, to recognise a number that a script sets afterwards.
_default_number = torch.get_num_threads()
_chosen_number: int | None = None  # by set_threads


class TorchHandler(Handler):
    """Handler that gives the agent tensors which share memory with the rows of the batch.

    Views are on the CPU, like the batch. An agent on another device moves its inputs, and its outputs
    are copied back.

    Args:
        agent: any Agent.
        threads: number of PyTorch's CPU threads in the whole process. Defaults to one for models of
            fewer than 200 000 parameters, which more threads would slow down. A number already set
            by `torch.set_num_threads`, OMP_NUM_THREADS or MKL_NUM_THREADS is kept.

    Raises:
        TypeError: if `agent` is not an Agent.
        ValueError: if `threads` is less than one.
    """

    def __init__(self, agent: Agent, *, threads: int | None = None) -> None:
        super().__init__(agent)
        # A model on a GPU does not benefit from CPU threads, so it does not count.
        modules = [m for m in self._models() if isinstance(m, nn.Module)]
        on_cpu = [m for m in modules if all(p.device.type == "cpu" for p in m.parameters())]
        set_threads(on_cpu, threads)

    def convert(self, array: NDArray[Any]) -> Tensor:
        """Return a tensor that shares the memory of `array`, or a copy if it is read-only."""
        # `from_numpy` warns about read-only memory, because tensors cannot be read-only.
        return torch.from_numpy(array if array.flags.writeable else np.array(array))

    def _bind_step(self, columns: slice) -> Callable[[int], None]:
        # Looked up for each batch, since modules may be hooked or replaced between batches.
        noise = self._noise_of(columns)
        if noise is None:
            return super()._bind_step(columns)
        views = self._views(columns)
        values_of = self._known_action_values()
        if values_of is not None:
            return _bound_q_step(self.agent, values_of, views, noise)
        act = self._known_act()
        if act is None:
            return super()._bind_step(columns)
        observations = views.observation
        write_action, write_info = views.action.write, views.info.write
        inference = torch.inference_mode()

        def step(t: int) -> None:
            # As in `PgAgent.step`: results without version counters are cheaper.
            with inference:
                action, value, log_prob = act(observations[t], noise[t])
                write_action(t, action)
                write_info(t, NamedTuple(value=value, log_prob=log_prob))

        return step

    def _known_action_values(self) -> Callable[[Any], Tensor] | None:
        """Return what computes the action values of a known QAgent, or None; see `_known_act`."""
        if not self._only_observation or not isinstance(self.agent, QAgent):
            return None
        try:
            known_q_model(self.agent, type(self).__name__, "")
        except (TypeError, ValueError):
            return None
        return action_values_of(self.agent)

    def _known_act(self) -> Act | None:
        """Return what computes the steps of a known agent without calling its modules, or None."""
        if not self._only_observation:
            return None
        try:
            return act_of(known_agent(self.agent, type(self).__name__, ""))
        except (TypeError, ValueError):
            return None

    # Copies from any device, casting to the dtype of the batch. PyTorch's own function without a wrapper,
    # because it runs for every leaf of every row.
    write = staticmethod(Tensor.copy_)

    def to_numpy(self, value: Tensor) -> NDArray[Any]:
        """Return an array on the CPU. Raises TypeError for anything but a tensor."""
        if not isinstance(value, Tensor):
            kind, agent = type(value), type(self.agent).__name__
            raise TypeError(
                f"{type(self).__name__}: expected tensors from the agent ({agent}), got a "
                f"{kind.__module__}.{kind.__name__}. Use NumpyHandler for agents that compute in NumPy or "
                "JAX"
            )
        if value.dtype is torch.bfloat16:  # numpy has no such type
            value = value.float()
        array: NDArray[Any] = value.detach().cpu().numpy()
        return array


def _bound_q_step(
    agent: Any, values_of: Callable[[Any], Tensor], views: StepViews, noise: Sequence[Any]
) -> Callable[[int], None]:
    """Return a function that steps a QAgent as its own `step` does."""
    observations, write_action = views.observation, views.action.write
    inference, start = torch.inference_mode(), agent.start
    masked = agent.model.action_mask is not None
    # Once for all rows: where the agent explores, and with which actions if all are allowed.
    whole = torch.stack(list(noise))
    explores = whole >= 0
    some, every = explores.any(1).tolist(), explores.all(1).tolist()
    drawn = (whole * agent.n_actions).long() + start

    def step(t: int) -> None:
        with inference:
            if every[t] and not masked:
                write_action(t, drawn[t])
                return
            values = values_of(observations[t])
            action = values.argmax(-1)
            if some[t] and masked:
                action = explore(values, action, noise[t])
            if start:
                action = action + start
            if some[t] and not masked:
                action = torch.where(explores[t], drawn[t], action)
            write_action(t, action)

    return step


def set_threads(models: Iterable[nn.Module], threads: int | None = None) -> int:
    """Set the number of PyTorch's CPU threads for these models, and return it.

    threads: None chooses one thread if all models have fewer than 200 000 parameters, else PyTorch's
        default. A number already set by `torch.set_num_threads`, OMP_NUM_THREADS or MKL_NUM_THREADS is kept.

    Raises:
        ValueError: if `threads` is less than one.
    """
    global _chosen_number
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads: expected at least 1, got {threads}")
        torch.set_num_threads(threads)
        return threads
    now = torch.get_num_threads()
    # The environment variables are checked too: with them, PyTorch's default is already the chosen number.
    if any(name in os.environ for name in _BY_ENVIRONMENT) or now not in (
        _default_number,
        _chosen_number,
    ):
        return now
    sizes = [sum(p.numel() for p in model.parameters()) for model in models]
    if (
        not sizes or _chosen_number == _default_number
    ):  # once a large model has its threads, later models do not change the number
        return now
    _chosen_number = 1 if max(sizes) < _SMALL else _default_number
    torch.set_num_threads(_chosen_number)
    return _chosen_number
