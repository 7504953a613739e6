"""The formats of exported files: ONNX and TorchScript."""

from __future__ import annotations

import io
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from parllel.errors import install_command
from parllel.torch.exports.exported_program import cannot_export, export_program, quiet
from parllel.torch.exports.policy_module import PolicyModule

# Computes the outputs of a file from its inputs, both in the order of their names.
Run: TypeAlias = Callable[[Sequence[NDArray[Any]]], list[NDArray[Any]]]
DESCRIPTION = "parllel"  # key of the description in ONNX's metadata
DESCRIPTION_FILE = "parllel.json"  # its name in a TorchScript file


class FileFormat(ABC):
    """Writes a PolicyModule and its description, and runs what was written."""

    @abstractmethod
    def check_installed(self) -> None:
        """Raise ImportError if a library is missing; names the extra that installs it."""

    @abstractmethod
    def content(self, module: PolicyModule, description: dict[str, Any]) -> bytes:
        """Return the content of a file.

        Raises:
            TypeError: if the module cannot be exported; names the layer.
        """

    @abstractmethod
    def load(self, content: bytes, module: PolicyModule) -> Run:
        """Return what computes the outputs by the content of a file."""


class OnnxFormat(FileFormat):
    """ONNX, for ONNX Runtime and others. The names of the tensors are those of the module."""

    def check_installed(self) -> None:
        """Raise ImportError if onnx, onnxscript or onnxruntime is missing."""
        try:
            import onnx  # noqa: F401
            import onnxruntime  # noqa: F401
            import onnxscript  # noqa: F401
        except ModuleNotFoundError as error:
            raise ImportError(
                f"an ONNX file needs {error.name}: {install_command('export')}", name=error.name
            ) from error

    def content(self, module: PolicyModule, description: dict[str, Any]) -> bytes:
        """Return an ONNX model whose first dimensions are called N."""
        program = export_program(module)
        _check_precision(program)
        try:
            with quiet():
                exported: Any = torch.onnx.export(
                    program,
                    (),
                    dynamo=True,
                    input_names=list(module.inputs),
                    output_names=list(module.outputs),
                    verbose=False,
                )
        except Exception as error:
            raise _not_onnx(program, error) from error
        proto = exported.model_proto
        _name_first_dimension(proto.graph)
        proto.producer_name, _, proto.producer_version = description["producer"].partition(" ")
        proto.metadata_props.add(key=DESCRIPTION, value=json.dumps(description))
        content: bytes = proto.SerializeToString()
        return content

    def load(self, content: bytes, module: PolicyModule) -> Run:
        """Return what ONNX Runtime computes, on one thread."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(f"export: ONNX Runtime cannot execute the model: {reason}") from error
        return lambda inputs: session.run(  # type: ignore[no-any-return]
            list(module.outputs), dict(zip(module.inputs, inputs, strict=True))
        )


class TorchScriptFormat(FileFormat):
    """TorchScript, for torch.jit.load in Python and C++. Tensors are positional."""

    def check_installed(self) -> None:
        """Do nothing: it needs only PyTorch."""

    def content(self, module: PolicyModule, description: dict[str, Any]) -> bytes:
        """Return a TorchScript archive."""
        # A trace records wrong constants silently; torch.export refuses them, and names the layer.
        export_program(module)
        file = io.BytesIO()
        with quiet(), torch.inference_mode():
            traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
                module, tuple(module.example_inputs(2)), check_trace=False
            )
            torch.jit.save(traced, file, {DESCRIPTION_FILE: json.dumps(description)})
        return file.getvalue()

    def load(self, content: bytes, module: PolicyModule) -> Run:
        """Return what the loaded archive computes."""
        with quiet():
            loaded: Any = torch.jit.load(io.BytesIO(content))  # type: ignore[no-untyped-call]

        def run(inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
            with torch.inference_mode():
                found = loaded(*(torch.from_numpy(np.ascontiguousarray(x)) for x in inputs))
            return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]

        return run


FORMATS: dict[str, FileFormat] = {".onnx": OnnxFormat(), ".pt": TorchScriptFormat()}


def format_of(path: Path) -> FileFormat:
    """Return the format that a file's suffix names.

    Raises:
        ValueError: for another suffix.
        ImportError: if a library is missing.
    """
    found = FORMATS.get(path.suffix)
    if found is None:
        raise ValueError(f"{path}: expected a name that ends in {' or '.join(FORMATS)}")
    found.check_installed()
    return found


def _name_first_dimension(graph: Any) -> None:
    """Call the number of environments N, which torch calls s26, for example."""
    given = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_param = re.sub(rf"\b{given}\b", "N", dimension.dim_param)


def _check_precision(program: torch.export.ExportedProgram) -> None:
    """Raise TypeError for a layer in bfloat16, for which ONNX Runtime has no kernels on CPUs."""
    for graph_module in program.graph_module.modules():
        for node in getattr(graph_module, "graph", torch.fx.Graph()).nodes:
            value, layers = node.meta.get("val"), node.meta.get("nn_module_stack")
            if layers and isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16:
                name, kind = list(layers.values())[-1]
                raise cannot_export(
                    name,
                    kind.rpartition(".")[2],
                    "it computes in bfloat16, which ONNX Runtime cannot; export to .pt, or change the config "
                    "so that it computes in float32",
                )


def _not_onnx(program: torch.export.ExportedProgram, error: Exception) -> TypeError:
    """Return the error that names the layer which has an operation that ONNX has not."""
    # "Error when translating node %svd : ...", then "No ONNX function found for <OpOverload(...)>".
    messages: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        messages.append(str(cause))
        cause = cause.__cause__
    node = re.search(r"translating node %(\w+)", "\n".join(messages))
    why = messages[-1].partition("\n")[0]
    if node is not None:
        with quiet():
            nodes = program.run_decompositions().graph.nodes
        for found in nodes:
            if found.name == node[1] and found.meta.get("nn_module_stack"):
                name, kind = list(found.meta["nn_module_stack"].values())[-1]
                return cannot_export(name, kind.rpartition(".")[2], why)
    return TypeError(f"export: the policy cannot be exported to ONNX: {why}")
