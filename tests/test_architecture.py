"""The walks of docs/architecture.md lead through files and functions that exist, and none comes back."""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALKS = {
    section.partition("\n")[0]: re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", section, re.M)
    for section in PAGE.split("\n## ")[1:]
}
MEMBERS = (ast.FunctionDef, ast.ClassDef)


def names_in(path):
    """Return all functions and classes of a file, with those within classes as `Class.method`."""
    names = set()

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, MEMBERS):
                names.add(prefix + child.name)
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(path.read_text()), "")
    return names


def test_there_are_four_walks():
    assert len(WALKS) == 4
    assert all(len(stops) >= 5 for stops in WALKS.values())


@pytest.mark.parametrize("walk", WALKS)
def test_each_stop_exists(walk):
    for file, place in WALKS[walk]:
        assert place in names_in(ROOT / file), f"{file}: {place}"


@pytest.mark.parametrize("walk", WALKS)
def test_no_walk_comes_back_to_a_package(walk):
    packages = ["/".join(Path(file).parts[:2]) for file, _ in WALKS[walk]]
    entered = [package for package, _ in groupby(packages)]
    assert len(entered) == len(set(entered)), entered
