"""A PolicyModule as a graph for any number of environments, and the name of a layer that has none."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import Any

import torch
from torch import hub, nn

from parllel.torch.exports.policy_module import PolicyModule


def export_program(module: PolicyModule) -> torch.export.ExportedProgram:
    """Return the graph of a module, whose first dimensions are all the same, unknown N.

    Raises:
        TypeError: for a layer that has no such graph: one whose computation depends on the values of tensors
            or on N, or takes place outside torch. The message names the layer.
    """
    inputs = tuple(module.example_inputs(2))
    N = torch.export.Dim("N", min=1)
    with _Layers(module) as layers, quiet():
        try:
            return torch.export.export(
                module, inputs, dynamic_shapes=(tuple({0: N} for _ in inputs),), strict=False
            )
        except Exception as error:
            raise layers.refusal(error) from error


class _Layers:
    """Follows which layer computes, to name the one that raises an error or makes N a constant."""

    def __init__(self, module: PolicyModule) -> None:
        self._module = module
        self._names = {layer: name for name, layer in module.named_modules()}
        self._inside: list[nn.Module] = []
        self._batch: Any = None
        self._fixing: nn.Module | None = None
        self._stack = ExitStack()

    def __enter__(self) -> _Layers:
        for layer in self._names:
            for handle in (
                layer.register_forward_pre_hook(self._enter),
                layer.register_forward_hook(self._leave),
            ):
                self._stack.callback(handle.remove)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def refusal(self, error: Exception) -> TypeError:
        """Return the error that names the layer."""
        if self._inside:
            layer, why = self._inside[-1], _first_line(error)
        elif self._fixing is not None:
            layer, why = self._fixing, "it computes for one number of environments only"
        else:
            layer, why = self._module, _first_line(error)
        return cannot_export(self._names[layer], type(layer).__name__, why)

    def _enter(self, layer: nn.Module, inputs: Any) -> None:
        if layer is self._module:
            self._batch = inputs[0]
        self._inside.append(layer)

    def _leave(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        while self._inside.pop() is not layer:  # it caught the error of a layer inside
            pass
        # Inner layers leave first.
        if self._fixing is None and _is_known(self._batch.shape[0]):
            self._fixing = layer


def _is_known(size: Any) -> bool:
    return not isinstance(size, torch.SymInt) or size.node.maybe_as_int() is not None


def cannot_export(name: str, kind: str, why: str) -> TypeError:
    """Return the error for a layer, given its name in the PolicyModule and its class."""
    named = name.removeprefix("model").removeprefix(".")
    layer = f"layer {named!r} ({kind})" if named else kind
    return TypeError(f"export: {layer} cannot be exported: {why}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Hide what torch's exporters say of their own code: warnings, log records, and graphs of failures."""
    logger = logging.getLogger("torch")
    bar: Any = vars(hub)["tqdm"]
    level, interval = logger.level, getattr(bar, "monitor_interval", 0)
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        # torch computes graphs behind a progress bar, hidden, whose thread would stay.
        bar.monitor_interval = 0
        try:
            yield
        finally:
            logger.setLevel(level)
            bar.monitor_interval = interval
