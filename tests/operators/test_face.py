from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import resolve_name
from pathlib import Path

import pytest

import parllel.operators as face

PLACES = {
    name: resolve_name(f".{place}", "parllel.operators") for name, place in face._PLACES.items()
}


def test_every_name_is_found_where_the_table_says():
    assert sorted(face._PLACES) == sorted(face.__all__)
    for name, module in PLACES.items():
        found = getattr(face, name)
        assert getattr(found, "__module__", module) == module


def test_types_are_checked_against_the_same_places():
    tree = ast.parse(Path(face.__file__).read_text())
    imported = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parllel.")
        for alias in node.names
    }
    assert imported == PLACES


def test_no_module_takes_the_place_of_a_name():
    modules = {path.stem for path in Path(face.__file__).parent.glob("*.py")}
    assert not modules & set(face.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'serves'"):
        _ = face.serves


def test_what_a_worker_imports_is_light():
    code = (
        "import sys; import parllel.operators as o; o.serve, o.env_named, o.Decision;"
        "print([m for m in sys.modules if m.partition('.')[0] in"
        " ('torch', 'ray', 'numba', 'matplotlib', 'PIL', 'uvicorn', 'httpx2')"
        " or m in ('parllel.cages', 'parllel.policies', 'parllel.processes', 'parllel.buffers')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_library_is_named_with_the_extra():
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "import parllel.operators as o\n"
        "try:\n o.serve\nexcept ImportError as error:\n print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "parllel.operators.serve needs msgspec: pip install '.[operators]' in a checkout of parllel"
    )
