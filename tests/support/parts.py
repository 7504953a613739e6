"""Print the parts in which `make test` runs the tests, or the files of one part.

Many tests fork, and how long that takes depends on all that a process has imported. Each worker of pytest
imports all files of its run. So the tests run in parts, and files that import PyTorch, Ray or the like are
parts of their own.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
# In the order of their starts, long ones first. Other files are in "rest".
FOLDERS = {
    "operators": ["distributed/operators"],
    "documents": ["test_documents.py", "examples", "integration"],
    "torch": ["torch"],
    "cages": ["cages"],
    "runs": ["runners", "runs", "logging", "pictures"],
    "cli": ["cli"],
    "samplers": ["samplers", "replays"],
    "remote": ["distributed/remote", "distributed/web", "distributed/wire"],
    "messaging": ["distributed/messaging"],
    "rollouts": ["distributed/rollouts"],
    "envs": ["envs", "vector"],
    "policies": ["policies", "patterns", "agents"],
    "benchmarks": ["benchmarks"],
}
LARGE = {"torch", "ray", "jax", "stable_baselines3", "envpool"}
LARGE |= {"parllel.torch", "parllel.jax", "parllel.distributed.rollouts.on_ray"}
BY_NAME = {path.stem: path for path in TESTS.rglob("*.py") if path.stem != "conftest"}


def imported(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that statements import when they are executed, without those of functions."""
    for one in statements:
        if isinstance(one, ast.Import):
            yield from (alias.name for alias in one.names)
        elif isinstance(one, ast.ImportFrom):
            yield one.module or ""
            yield from (f"{one.module}.{alias.name}" for alias in one.names)
        elif isinstance(one, (ast.Assign, ast.Expr)):
            yield from re.findall(r"importorskip\(['\"]([\w.]+)", ast.unparse(one))


def file_of(name: str) -> Path | None:
    """Return the file of a module of the tests, the benchmarks or the examples."""
    path = TESTS.parent / name.replace(".", "/")
    if name.startswith(("benchmarks", "examples")):
        found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
        return found[0] if found else None
    return BY_NAME.get(name)


@cache
def is_large(path: Path) -> bool:
    """Return whether importing a file imports a large library."""
    names = set(imported(ast.parse(path.read_text()).body))
    parts = {".".join(name.split(".")[:n]) for name in names for n in range(1, 5)}
    return bool(parts & LARGE) or any(is_large(file) for file in map(file_of, names) if file)


def parts() -> dict[str, list[Path]]:
    """Return the files of each part; JAX and what only `make soak` runs have processes of their own."""
    found: dict[str, list[Path]] = {}
    left = {path for path in TESTS.rglob("test_*.py") if not {"jax", "soak"} & set(path.parts)}
    conftests = {file.parent for file in TESTS.rglob("conftest.py") if is_large(file)}
    for name, folders in {**FOLDERS, "rest": [""]}.items():
        within = {TESTS / folder for folder in folders}
        files = {path for path in left if within & {path, *path.parents}}
        left -= files
        large = {path for path in files if is_large(path) or conftests & set(path.parents)}
        found[f"{name}-large"], found[name] = sorted(large), sorted(files - large)
    return {name: files for name, files in found.items() if files}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*(path.relative_to(TESTS.parent) for path in parts()[sys.argv[1]]))
    else:
        print(*parts())
