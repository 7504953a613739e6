"""Packages that import their names when they are first asked for."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

LAZY = ("parllel", "parllel.distributed.operators", "parllel.distributed.web", "parllel.policies")


def imported_for_types(package):
    tree = ast.parse(Path(package.__file__).read_text())
    return {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.If)
        for node in node.body
        for alias in node.names
    }


@pytest.fixture(params=LAZY)
def package(request):
    return import_module(request.param)


def test_every_name_is_found_where_type_checkers_find_it(package):
    places = imported_for_types(package)
    assert sorted(places) == sorted(package.__all__)
    for name, module in places.items():
        assert package.__getattr__(name) is vars(import_module(module))[name]
        assert name in dir(package)


def test_no_module_takes_the_place_of_a_name(package):
    folder = Path(package.__file__).parent
    modules = {path.stem for path in [*folder.glob("*.py"), *folder.glob("*/")]}
    assert not modules & set(package.__all__)


def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"'{package.__name__}' has no attribute 'serves'"):
        _ = package.serves
