"""Adam with gradient clipping, over one flat array where that is possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from parllel.algos.flat_adam import FlatAdam, misfit
from parllel.system.compilation import compiles
from parllel.torch.module_state import load_optimizer_state, optimizer_state
from parllel.types import State


class Adam:
    """Adam for the parameters of an algorithm, with gradients clipped group by group.

    Float32 parameters on the CPU are updated by a `FlatAdam`; others, and with `flat=False` all of them, by
    `torch.optim.Adam`. Both have the same states, so a checkpoint can change from one to the other. Neither
    is made before it is needed: a process that only plays a trained policy builds the algorithm as well,
    and need not import numba or PyTorch's compiler for that.

    Args:
        parameters: to optimise, in the order of the state.
        groups: the same parameters in the same order, by group; default: one group.
        lr: learning rate.
        eps: added to the denominator.
        flat: whether a FlatAdam may be used.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        groups: Sequence[Sequence[nn.Parameter]] | None = None,
        lr: float,
        eps: float = 1e-8,
        flat: bool = True,
    ) -> None:
        self.parameters = list(parameters)
        self._groups = [self.parameters] if groups is None else [list(group) for group in groups]
        self._lr, self._eps, self._may_be_flat = lr, eps, flat
        self._flat: FlatAdam | None = None
        self._optimizer: torch.optim.Adam | None = None
        # Loaded before either exists. It also decides which of them is made.
        self._loaded: State | None = None
        self._pairs: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
        self._pairs_of: FlatAdam | None = None
        self._addresses: list[int] = []

    @property
    def optimizer(self) -> torch.optim.Adam:
        """PyTorch's optimiser, which takes all steps from the first use of this property on."""
        if self._optimizer is None:
            # Whoever holds the optimiser may change its options, which a FlatAdam would not notice.
            state = self._loaded if self._flat is None else self._flat.state()
            # Fused takes a quarter of the default's time for small networks on a CPU.
            optimizer = torch.optim.Adam(self.parameters, lr=self._lr, eps=self._eps, fused=True)
            if state is not None:
                load_optimizer_state(optimizer, state)
            self._optimizer, self._flat, self._loaded = optimizer, None, None
        return self._optimizer

    @property
    def is_flat(self) -> bool:
        """Whether a FlatAdam takes the steps."""
        return self._flat is not None

    @property
    def flat_parameters(self) -> NDArray[np.float32] | None:
        """The parameters after the last step as one array, float32 [n]; None without a FlatAdam."""
        return None if self._flat is None else self._flat.parameters

    def prepare(self) -> FlatAdam | None:
        """Make what takes the steps. Returns the FlatAdam, or None if PyTorch's optimiser takes them.

        Call it before each batch, because a model may be frozen, moved or cast between batches.
        """
        if self._optimizer is not None or self.why_not_flat() is not None:
            _ = self.optimizer
        elif self._flat is None:
            self._flat = FlatAdam(
                [tuple(p.shape) for p in self.parameters],
                groups=[len(group) for group in self._groups],
                learning_rate=self._lr,
                eps=self._eps,
            )
            if self._loaded is not None:
                self._flat.load_state(self._loaded)
                self._loaded = None
        return self._flat

    def why_not_flat(self) -> str | None:
        """Return why the parameters cannot be updated by a FlatAdam, or None if they can."""
        if not self._may_be_flat:
            return 'update="autograd"'
        if self._optimizer is not None:
            return "PyTorch's optimizer is in use"
        if not compiles():
            return "NUMBA_DISABLE_JIT is set"
        grouped = [parameter for group in self._groups for parameter in group]
        if [id(p) for p in grouped] != [id(p) for p in self.parameters]:
            return "the groups do not list the parameters in their order"
        for position, p in enumerate(self.parameters):
            if p.device.type != "cpu" or p.dtype != torch.float32 or not p.requires_grad:
                return (
                    f"parameter {position}: expected float32 on the CPU with gradients, got {p.dtype} on "
                    f"{p.device}, requires_grad={p.requires_grad}"
                )
        if self._loaded is None:
            return None
        return misfit(self._loaded, [tuple(p.shape) for p in self.parameters])

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return self._lr

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        """Set the learning rate of the steps that follow."""
        self._lr = value
        if self._flat is not None:
            self._flat.learning_rate = value
        if self._optimizer is not None:
            for group in self._optimizer.param_groups:
                group["lr"] = value

    def bind(self) -> None:
        """Move the model's parameters into the array of the FlatAdam, so that nothing has to be copied.

        Only for parameters whose memory nobody else holds: they get another.
        """
        self.gather()
        assert self._flat is not None
        for view, parameter in zip(self._flat.parameter_views, self.parameters, strict=True):
            parameter.data = torch.from_numpy(view)

    def gather(self) -> None:
        """Copy the model's parameters to the FlatAdam."""
        for view, array in self._separate():
            np.copyto(view, array)

    def scatter(self) -> None:
        """Copy the FlatAdam's parameters to the model, after a `gather`."""
        # In place, because handlers and copies of the model hold this memory. To look again where it is would
        # take longer than most steps of small networks.
        for view, array in self._pairs:
            np.copyto(array, view)

    def step(self, max_norm: float) -> list[float]:
        """Take a step with gradients clipped to `max_norm`, and return each group's norm before clipping.

        If a norm is not finite, no parameter is changed.
        """
        flat = self.prepare() if self._flat is None else self._flat
        if flat is None:
            return self._step_of_torch(max_norm)
        # A parameter that took no part has a gradient of zero.
        gradients = [
            torch.zeros(p.numel()) if p.grad is None else p.grad.reshape(-1)
            for p in self.parameters
        ]
        torch.cat(gradients, out=torch.from_numpy(flat.gradients))
        norms: list[float] = flat.norms().tolist()
        if all(map(math.isfinite, norms)):
            # Each time, because parameters may have been loaded since the last step.
            self.gather()
            flat.step(max_norm)
            self.scatter()
        return norms

    def state(self) -> State:
        """Return moments and options, in the layout of `optimizer_state`."""
        if self._loaded is not None:
            return self._loaded
        flat = self.prepare()
        return optimizer_state(self.optimizer) if flat is None else flat.state()

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`. The caller must not modify it afterwards.

        Raises:
            ValueError: if the state belongs to other parameters.
        """
        groups, n = state["param_groups"], len(self.parameters)
        if len(groups) != 1 or len(groups[0]["params"]) != n:
            # Not left to the optimiser, which may not exist before the first update.
            raise ValueError(
                f"Adam: expected the state of one group of {n} parameters, got "
                f"{[len(group['params']) for group in groups]}"
            )
        if self._optimizer is not None:
            load_optimizer_state(self._optimizer, state)
        else:
            self._flat, self._loaded = None, state
        self._lr = float(groups[0]["lr"])

    def _step_of_torch(self, max_norm: float) -> list[float]:
        gradients = [[p.grad for p in group if p.grad is not None] for group in self._groups]
        # clip_grad_norm_ takes nearly three times as long, because it sorts by device first.
        norms = [
            torch.linalg.vector_norm(torch.stack(torch._foreach_norm(group))).item()
            for group in gradients
        ]
        # All norms are checked before anything is changed.
        if all(map(math.isfinite, norms)):
            for group, norm in zip(gradients, norms, strict=True):
                if norm > max_norm:
                    # The 1e-6 is from `clip_grad_norm_`, for comparable runs.
                    torch._foreach_mul_(group, max_norm / (norm + 1e-6))
            self.optimizer.step()
        return norms

    def _separate(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return a view of the flat array and one of the model for each parameter that is not in the array.

        They are made anew if `parameter.data` was replaced.
        """
        assert self._flat is not None
        addresses = [p.data_ptr() for p in self.parameters]
        if self._pairs_of is not self._flat or addresses != self._addresses:
            pairs = zip(
                self._flat.parameter_views,
                (p.detach().numpy() for p in self.parameters),
                strict=True,
            )
            self._pairs = [
                (view, array) for view, array in pairs if view.ctypes.data != array.ctypes.data
            ]
            self._pairs_of, self._addresses = self._flat, addresses
        return self._pairs
