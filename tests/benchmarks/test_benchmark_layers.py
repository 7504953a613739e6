"""Benchmarks stand on one harness: it imports none of them, and none goes round in a circle."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
# From top to bottom: a file imports from rows above its own, and its own folder.
ROWS = (
    ("harness",),
    ("peers", "remote", "operators", "messaging", "vector", "sweeps"),
    ("end_to_end", "rollouts", "distributed"),
    ("gallery", "scaling"),
    ("summary", "figures", "samples"),
    ("pages",),
    ("command",),
    ("run", "__main__"),
)
ROW_OF = {name: number for number, row in enumerate(ROWS) for name in row}


def sources():
    """Return the benchmarks' files; virtual environments are among them."""
    return [
        path
        for path in sorted(FOLDER.rglob("*.py"))
        if ".venvs" not in path.parts and path.name != "__init__.py"
    ]


def imports_of(source):
    """Return `(line, module)` of all that is imported from benchmarks, in functions too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return [(line, name.split(".")) for line, name in found if name.startswith("benchmarks.")]


def row_of(parts):
    """Return the row of a module's path below benchmarks; programs are below all."""
    if parts[-1] in ("run", "__main__"):
        return ROW_OF["run"]
    return ROW_OF[parts[0]]


def violations(relative, source):
    """Return `file:line: what is wrong` for each import of a row that is not above."""
    own = relative.with_suffix("").parts
    found = []
    for line, (_, *other) in imports_of(source):
        inside = len(own) > 1 and other[0] == own[0]
        if other[0].startswith("bench_") or row_of(other[:2]) < row_of(own):
            continue
        if not inside or row_of(other[:2]) > row_of(own):
            found.append(f"{relative}:{line}: imports {'.'.join(other)}")
    return found


def test_benchmarks_import_from_rows_above_their_own():
    found = []
    for path in sources():
        relative = path.relative_to(FOLDER)
        if not relative.name.startswith("bench_"):
            found += violations(relative, path.read_text())
    assert not found, "\n" + "\n".join(found)


def test_questions_import_no_other_benchmark_but_the_harness():
    # Sides of comparisons are shared, whichever package has them.
    allowed = {"harness", "samples", "peers", "rollouts"}
    for path in FOLDER.glob("bench_*.py"):
        names = {other[0] for _, (_, *other) in imports_of(path.read_text())}
        assert {name for name in names if not name.startswith("bench_")} <= allowed, path.name


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("peers/a.py", "from benchmarks.harness.turns import Work", []),
        ("peers/a.py", "from benchmarks.peers.goals import Goal", []),
        (
            "peers/a.py",
            "def f():\n    from benchmarks import pages",
            ["peers/a.py:2: imports pages"],
        ),
        ("peers/a.py", "import benchmarks.remote", ["peers/a.py:1: imports remote"]),
        ("peers/run.py", "from benchmarks.command import Command", []),
        (
            "peers/a.py",
            "from benchmarks.peers.run import put",
            ["peers/a.py:1: imports peers.run.put"],
        ),
        (
            "harness/a.py",
            "from benchmarks.peers import goals",
            ["harness/a.py:1: imports peers.goals"],
        ),
    ],
)
def test_what_a_row_forbids(file, source, expected):
    assert violations(Path(file), source) == expected


def modules():
    """Return the modules by dotted name below benchmarks, with what each imports of the others."""
    names = {
        ".".join(path.relative_to(FOLDER).with_suffix("").parts): path.read_text()
        for path in sources()
    }
    found = {}
    for name, source in names.items():
        imported = {".".join(other) for _, (_, *other) in imports_of(source)}
        # `from benchmarks.peers import goals` names a module, `from benchmarks.peers.goals import Goal` not.
        imported |= {one.rpartition(".")[0] for one in imported}
        found[name] = imported & set(names)
    return found


def test_modules_make_no_circle():
    left = modules()
    while free := [name for name, imported in left.items() if not imported & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"a circle among {sorted(left)}"
