from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "parllel"
SOURCES = sorted(PACKAGE.rglob("*.py"))
# From top to bottom: a package imports from rows above its own. The packages of `system` and of `distributed`
# have rows of their own.
ROWS = (
    ("errors", "system.code_digest", "types", "seeding", "version"),
    ("lazy_names", "logging"),
    (
        "system.compilation",
        "system.counted_time",
        "system.limits",
        "system.start_program",
        "system.raised_signals",
    ),
    ("system.processes", "system.waits"),
    ("arrays",),
    ("buffers", "envs"),
    ("cages", "agents", "transforms"),
    ("samplers", "replays"),
    ("algos", "runs", "pictures"),
    ("runners",),
    ("torch", "jax", "policies", "vector"),
    ("distributed.wire",),
    ("distributed.web",),
    tuple(f"distributed.{name}" for name in ("messaging", "remote", "operators", "rollouts")),
    ("cli",),
    ("testing", "__main__"),
)
ROW_OF = {package: number for number, row in enumerate(ROWS) for package in row}
HOUSES = {package.partition(".")[0] for package in ROW_OF if "." in package}
# Libraries that some packages alone may import, wherever in a file.
RESERVED = {
    "torch": {"torch"},
    "onnx": {"torch"},
    "onnxruntime": {"torch"},
    "onnxscript": {"torch"},
    "jax": {"jax"},
    "jaxlib": {"jax"},
    "optax": {"jax"},
    "ray": {"distributed.rollouts"},
    "stable_baselines3": {"vector"},
    "h11": {"distributed.web", "distributed.operators"},
    "websockets": {"distributed.web", "distributed.operators"},
    "httpx2": set(),
    "google": {"distributed.remote"},
    "jsonschema": {"distributed.remote", "distributed.operators"},
    "pettingzoo": {"distributed.remote", "distributed.operators"},
    "msgspec": {package for package in ROW_OF if package.startswith("distributed.")},
    "confluent_kafka": {"distributed.messaging"},
    "optuna": {"cli"},
    "parllel_patterns": set(),
}


def entry_of(parts):
    """Return the row's entry that a dotted name below the root belongs to."""
    return ".".join(parts[: 2 if parts[0] in HOUSES else 1])


def package_of(path, root=PACKAGE):
    """Return the row's entry that a file belongs to; "" for an `__init__.py` that belongs to none."""
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1] == "__init__":
        del parts[-1]
    return "" if not parts or (parts == [parts[0]] and parts[0] in HOUSES) else entry_of(parts)


@functools.cache
def read(source):
    """Return `(line, level, module, name)` of all imports, and the lines that only type checkers execute."""
    imports, typed = [], set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imports += [(node.lineno, 0, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            of = (node.lineno, node.level, node.module)
            imports += [(*of, alias.name) for alias in node.names]
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            typed.update(range(node.lineno, node.end_lineno + 1))
    return imports, typed


def imports_of(path, source, root=PACKAGE):
    """Return `(line, dotted name)` of all imports, those in functions and under TYPE_CHECKING too."""
    folder = [root.name, *path.relative_to(root).parent.parts]
    found = []
    for line, level, module, name in read(source)[0]:
        # `from parllel import cages` means parllel.cages.
        base = folder[: len(folder) + 1 - level] if level else []
        found.append((line, ".".join([*base, *filter(None, (module, name))])))
    return sorted(found)


def violations(path, source, root=PACKAGE):
    """Return `file:line: what is wrong` for each import that the layers forbid."""
    own = package_of(path, root)
    typed = read(source)[1]
    found = []

    def report(line, text):
        found.append(f"{path.relative_to(root.parent)}:{line}: {text}")

    for line, name in imports_of(path, source, root):
        top, *rest = name.split(".")
        if own not in RESERVED.get(top, {own}):
            report(line, f"{top} is not for {own or 'the root'}")
        if top != root.name:
            continue
        other = entry_of(rest) if rest else ""
        if other not in ROW_OF:
            report(line, f"imports the root package ({name})")
        elif own == "":
            if ROW_OF[other] > 1 and line not in typed:
                report(line, f"the root imports rows 0 and 1 alone, not {name}")
        elif other != own and ROW_OF[other] >= ROW_OF[own]:
            report(line, f"{own} (row {ROW_OF[own]}) imports {name} (row {ROW_OF[other]})")
    return found


def test_packages_import_from_rows_above_their_own():
    found = [line for path in SOURCES for line in violations(path, path.read_text())]
    assert not found, "\n" + "\n".join(found)


def test_every_package_has_its_row():
    assert {package_of(path) for path in SOURCES} - {""} <= set(ROW_OF)


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("cages/a.py", "from parllel.buffers import Samples", []),
        ("cages/a.py", "from parllel.cages.stepping.rows import Rows", []),
        ("cages/a.py", "import numpy, numba", []),
        ("cages/a.py", "import os\nimport parllel.samplers", ["2: cages (row 6) imports"]),
        ("cages/a.py", "from parllel.agents import Agent", ["1: cages (row 6) imports"]),
        ("seeding.py", "from parllel.types import Tree", ["1: seeding (row 0) imports"]),
        ("cages/a.py", "def f():\n    from parllel.runners import x", ["2: cages (row 6) imports"]),
        (
            "cages/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import parllel.agents as a",
            ["3: cages (row 6) imports"],
        ),
        ("cages/a.py", "from parllel import BatchSpec", ["1: imports the root package"]),
        ("cages/a.py", "import parllel", ["1: imports the root package"]),
        ("cages/a.py", "from parllel import samplers", ["1: cages (row 6) imports"]),
        ("cages/a.py", "from ..samplers import x", ["1: cages (row 6) imports"]),
        ("cages/a.py", "from .. import x", ["1: imports the root package"]),
        ("cages/a.py", "from .rows import Rows", []),
        ("cages/deep/a.py", "from ..rows import Rows", []),
        ("cages/a.py", "import torch.nn", ["1: torch is not for cages"]),
        ("torch/a.py", "from torch import nn", []),
        ("jax/a.py", "import jax.numpy as jnp", []),
        ("jax/a.py", "import torch", ["1: torch is not for jax"]),
        ("torch/a.py", "import jax", ["1: jax is not for torch"]),
        ("testing/a.py", "def f():\n    import torch", ["2: torch is not for testing"]),
        ("runners/a.py", "from parllel_patterns import x", ["1: parllel_patterns is not for"]),
        ("__init__.py", "from parllel.seeding import Seeds", []),
        ("__init__.py", "from parllel.cages import Cage", ["1: the root imports rows 0 and 1"]),
        ("__init__.py", "if TYPE_CHECKING:\n    from parllel.cages import Cage", []),
        ("system/waits/a.py", "from parllel.system.limits import x", []),
        (
            "system/waits/a.py",
            "from parllel.system.processes import x",
            ["1: system.waits (row 3)"],
        ),
        ("distributed/web/a.py", "from parllel.distributed.wire import x", []),
        ("distributed/web/a.py", "from parllel.distributed import remote", ["1: distributed.web"]),
        ("distributed/wire/a.py", "import ray", ["1: ray is not for distributed.wire"]),
    ],
)
def test_the_check_finds_what_it_is_for(file, source, expected):
    found = violations(PACKAGE / file, source)
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(f"parllel/{file}:{start}")


def modules_of(root=PACKAGE):
    """Return the file of each module by its dotted name."""
    names = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = path
    return names


def foreign_underscores(path, source, root=PACKAGE):
    """Return `file:line: module` of each import of what begins with `_`, from outside its folder."""
    folder = [root.name, *path.relative_to(root).parent.parts]
    found = []
    for line, name in imports_of(path, source, root):
        parts = name.split(".")
        # Names within a module are looked at by ruff and by mypy.
        hidden = [i for i, part in enumerate(parts[:-1]) if part.startswith("_")]
        if parts[0] == root.name and any(parts[:i] != folder[:i] for i in hidden):
            found.append(f"{path.relative_to(root.parent)}:{line}: {name}")
    return found


def test_what_begins_with_an_underscore_stays_in_its_folder():
    found = [line for path in SOURCES for line in foreign_underscores(path, path.read_text())]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "source", "n_found"),
    [
        ("cages/a.py", "from parllel.cages._rows import Rows", 0),
        ("cages/deep/a.py", "from parllel.cages._rows import Rows", 0),
        ("samplers/a.py", "from parllel.cages._rows import Rows", 1),
        ("samplers/a.py", "from parllel.cages._deep.rows import Rows", 1),
        ("cages/__init__.py", "from parllel.cages._rows import Rows", 0),
        ("cages/a.py", "from parllel.samplers import Sampler as _Sampler", 0),
    ],
)
def test_a_foreign_underscore_is_found(file, source, n_found):
    assert len(foreign_underscores(PACKAGE / file, source)) == n_found


def circle_in(graph):
    """Return modules that import each other in a circle, [] if there is none."""
    state = {}

    def visit(node, path):
        state[node] = "open"
        for other in sorted(graph[node]):
            if state.get(other) == "open":
                return [*path[path.index(other) :], other]
            if other not in state and (found := visit(other, [*path, other])):
                return found
        state[node] = "done"
        return []

    for node in sorted(graph):
        if node not in state and (found := visit(node, [node])):
            return found
    return []


def test_modules_import_each_other_in_no_circle():
    """Imports for types count as well: a reader has to follow them all the same."""
    modules = modules_of()
    inner = {name: path for name, path in modules.items() if path.name != "__init__.py"}
    graph = {}
    for name, path in inner.items():
        # A name of a package's face leads to the face, and `from parllel.x import y` to x or to x.y.
        reached = {module for _, module in imports_of(path, path.read_text())}
        reached |= {module.rpartition(".")[0] for module in reached}
        graph[name] = (reached & set(inner)) - {name}
    assert circle_in(graph) == []


def test_a_circle_is_found():
    assert circle_in({"a": {"b"}, "b": set(), "c": {"a"}}) == []
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def exports_of(path):
    """Return the names that an `__init__.py` imports or defines, and its `__all__`."""
    tree = ast.parse(path.read_text())
    names, exported = set(), None
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "__all__":
            exported = ast.literal_eval(node.value)  # of a package that offers nothing itself
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported = ast.literal_eval(node.value)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names - {"annotations"}, exported


def house_order(name):
    """Sort constants first, then classes, then functions, as ruff does."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


PATTERNS = ROOT / "patterns" / "parllel_patterns"
INITS = [*PACKAGE.rglob("__init__.py"), PATTERNS / "__init__.py"]


@pytest.mark.parametrize("path", INITS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_packages_export_what_they_import(path):
    names, exported = exports_of(path)
    assert exported is not None, f"{path}: no __all__"
    assert exported == sorted(exported, key=house_order)
    assert set(exported) <= names
    assert {name for name in names if not name.startswith("_")} == set(exported)


def test_setup_finds_every_package():
    found = set(find_packages(str(ROOT), include=["parllel*"]))
    folders = {path.parent for path in SOURCES}
    assert found == {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert find_packages(str(ROOT / "patterns")) == ["parllel_patterns"]


HEAVY = {"torch", "jax", "ray", "numba", "matplotlib", "tensorboard", "pytest", "hypothesis"}
LIGHT = {
    *("", "samplers", "cages", "agents", "transforms", "runners", "runs", "logging", "testing"),
    "policies",
    "replays",
}


@pytest.mark.parametrize("package", sorted(LIGHT))
def test_imports_stay_light(package):
    module = f"parllel.{package}" if package else "parllel"
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "parllel" in modules
    assert not modules & HEAVY
