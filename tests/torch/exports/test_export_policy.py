"""Exported files take the actions of the run, and say what they are."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from export_runs import EXACT, RECURRENT
from gymnasium.vector.utils import batch_space
from torch import nn

from parllel.policies import load_policy
from parllel.torch import export_policy
from parllel.torch.exports.export_policy import CHECKED
from parllel.torch.exports.file_formats import OnnxFormat

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
SUFFIXES = (".onnx", ".pt")


def runner_of(path):
    """Return what computes a file's outputs by name from named inputs, with nothing of parllel."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))
    found = {"parllel.json": ""}
    with pytest.warns(DeprecationWarning, match="torch.jit.load"):
        module = torch.jit.load(path, _extra_files=found)
    names = [output["name"] for output in json.loads(found["parllel.json"])["outputs"]]

    def run(inputs):
        outputs = module(*map(torch.from_numpy, inputs.values()))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return dict(zip(names, (output.numpy() for output in outputs), strict=True))

    return run


def named(description, observation):
    """Return the inputs of an observation by name, in the dtypes that the file asks for."""
    found = {}
    for described in description["inputs"]:
        name, dtype = described["name"], described["dtype"]
        if name.startswith("observation"):
            part = observation[name.partition(".")[2]] if "." in name else observation
            found[name] = np.asarray(part, dtype)
    return found


def first_state(description, N):
    return {
        x["name"]: np.array([x["first"]] * N, x["dtype"])
        for x in description["inputs"]
        if "first" in x
    }


def assert_same(actions, expected):
    assert actions.dtype == expected.dtype
    if np.issubdtype(expected.dtype, np.floating):
        np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_array_equal(actions, expected)


# Making an ONNX model takes seconds: those that differ most.
ONNX = ("categorical", "sac", "gaussian_gru", "r2d1", "parts", "images")


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [*((kind, ".pt") for kind in EXACT), *((kind, ".onnx") for kind in ONNX)],
)
@pytest.mark.few(2)
def test_a_file_takes_the_actions_of_the_run(run_of, tmp_path, kind, suffix):
    path = tmp_path / f"{kind}{suffix}"
    with load_policy(run_of(kind)) as policy:
        description = export_policy(policy, path)
        assert [file.name for file in tmp_path.iterdir()] == [path.name]
        run, N = runner_of(path), 1000 if kind not in RECURRENT else 200
        many = batch_space(policy.observation_space, N)
        many.seed(7)
        state = first_state(description, N)
        assert bool(state) == (kind in RECURRENT)
        policy.reset()
        for _ in range(5 if state else 1):
            observation = many.sample()
            outputs = run({**named(description, observation), **state})
            assert_same(outputs["action"], policy.act(observation, range(N)))
            state = {name: outputs[f"next_{name}"] for name in state}


def test_a_file_says_what_it_is(run_of, tmp_path):
    with load_policy(run_of("gaussian_gru")) as policy:
        description = export_policy(policy, tmp_path / "policy.onnx", params=True)
    model = onnx.load(tmp_path / "policy.onnx")
    onnx.checker.check_model(model)
    (entry,) = model.metadata_props
    assert (entry.key, json.loads(entry.value)) == ("parllel", description)
    assert description["agent"] == "RecurrentPgAgent"
    assert description["elapsed_steps"] == 60
    assert description["action_space"] == {
        "type": "Box",
        "shape": [2],
        "dtype": "float64",
        "low": [-0.2, 0.0],
        "high": [0.3, 0.5],
    }
    assert description["observation_space"]["low"] == "-inf"
    json.dumps(description, allow_nan=False)
    assert description["inputs"][1] == {
        "name": "rnn_state.hidden",
        "dtype": "float32",
        "shape": ["N", 8],
        "first": [0.0] * 8,
        "next": "next_rnn_state.hidden",
    }
    for values, key in ((model.graph.input, "inputs"), (model.graph.output, "outputs")):
        assert [value.name for value in values] == [x["name"] for x in description[key]]
        for value, described in zip(values, description[key], strict=True):
            dims = value.type.tensor_type.shape.dim
            assert [dim.dim_param or dim.dim_value for dim in dims] == described["shape"]
    assert [x["name"] for x in description["outputs"][:3]] == [
        "action",
        "params.mean",
        "params.log_std",
    ]


def test_the_memory_of_the_policy_is_kept(run_of, tmp_path):
    with load_policy(run_of("lstm")) as policy, load_policy(run_of("lstm")) as other:
        many = batch_space(policy.observation_space, 50)
        many.seed(3)
        first, second = many.sample(), many.sample()
        for each in (policy, other):
            each.act(first, range(50))
        export_policy(policy, tmp_path / "policy.pt")
        np.testing.assert_array_equal(policy.act(second, range(50)), other.act(second, range(50)))


class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class InNumpy(nn.Module):
    def forward(self, x):
        return torch.from_numpy(2 * x.numpy())


class ForTwo(nn.Module):
    def forward(self, x):
        return x.reshape(2, -1) if len(x) == 2 else x


class Singular(nn.Module):
    def forward(self, x):
        return x + torch.linalg.svdvals(x.unsqueeze(-1) @ x.unsqueeze(-2))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layer", [Branch(), InNumpy(), ForTwo()])
def test_a_layer_that_cannot_be_exported_is_named(run_of, tmp_path, capfd, layer, suffix):
    path = tmp_path / f"policy{suffix}"
    path.write_text("old")
    with load_policy(run_of("categorical")) as policy:
        policy.model.encoder = nn.Sequential(nn.Identity(), layer)
        name = rf"export: layer 'encoder\.1' \({type(layer).__name__}\) cannot be exported: "
        with pytest.raises(TypeError, match=name) as caught:
            export_policy(policy, path)
    assert "\n" not in str(caught.value)
    assert "def forward" not in "".join(capfd.readouterr())
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_layer_that_onnx_lacks_is_named(run_of, tmp_path):
    with load_policy(run_of("categorical")) as policy:
        policy.model.encoder = nn.Sequential(nn.Identity(), Singular())
        name = r"export: layer 'encoder\.1' \(Singular\) cannot be exported: No ONNX function"
        with pytest.raises(TypeError, match=name):
            export_policy(policy, tmp_path / "policy.onnx")
        export_policy(policy, tmp_path / "policy.pt")


def test_bfloat16_is_refused_for_onnx(run_of, tmp_path):
    said = r"layer 'encoder' \(CnnEncoder\) cannot be exported: it computes in bfloat16, which ONNX"
    with load_policy(run_of("bfloat16")) as policy, pytest.raises(TypeError, match=said):
        export_policy(policy, tmp_path / "policy.onnx")


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_other_actions_are_refused(run_of, tmp_path, kind):
    """As of an agent that overrides what a PolicyModule repeats."""
    with load_policy(run_of(kind)) as policy:
        act = policy.act
        policy.act = lambda *args: act(*args)[::-1].copy()
        with pytest.raises(
            ValueError, match=r"expected the actions of the run, got others for \d+ of"
        ):
            export_policy(policy, tmp_path / "policy.pt")
    assert not list(tmp_path.iterdir())


def test_either_of_two_equal_choices_will_do(run_of, tmp_path):
    with load_policy(run_of("categorical")) as policy:
        layer = policy.model.policy.layers[-1]
        layer.weight.data[1] = layer.weight.data[0]
        layer.bias.data[1] = layer.bias.data[0]
        act = policy.act
        # The policy takes the other one; action 4 is clearly another.
        swapped = np.array([3, 3, 4])
        policy.act = lambda *args: swapped[act(*args) - 2]
        export_policy(policy, tmp_path / "policy.pt")
        swapped[2] = 2
        with pytest.raises(ValueError, match="got others"):
            export_policy(policy, tmp_path / "policy.pt")


def test_mistakes(run_of, tmp_path, monkeypatch):
    with load_policy(run_of("td3")) as policy:
        with pytest.raises(
            ValueError, match=r"policy\.h5: expected a name that ends in \.onnx or \.pt"
        ):
            export_policy(policy, tmp_path / "policy.h5")
        with pytest.raises(FileNotFoundError, match="nowhere"):
            export_policy(policy, tmp_path / "nowhere" / "policy.pt")
        monkeypatch.setitem(sys.modules, "onnxscript", None)
        with pytest.raises(
            ImportError, match=r"an ONNX file needs onnxscript: pip install '\.\[export\]'"
        ):
            export_policy(policy, tmp_path / "policy.onnx")
        monkeypatch.undo()
        monkeypatch.setattr(OnnxFormat, "content", lambda *_: b"nothing")
        with pytest.raises(TypeError, match="export: ONNX Runtime cannot execute the model"):
            export_policy(policy, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
    assert sum(CHECKED) == 1000
