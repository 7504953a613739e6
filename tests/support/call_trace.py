"""Record which functions of the package are called, in what order, on each thread."""

from __future__ import annotations

import ast
import json
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parent.parent.parent
PACKAGE = str(ROOT / "parllel") + os.sep


class CallTrace:
    """Record the calls of Python functions below `parllel/` while it is entered.

    Of the thread that enters it, and of those that are started from then on. A generator or coroutine counts
    each time that it goes on. What has no name (lambdas, comprehensions) counts as the function around it.

    Args:
        marks: functions of elsewhere that are recorded too, and what they are called.

    Attributes:
        calls: by name of the thread, "main" for the one that entered: `module.qualname` in order, without the
            package's own name: "samplers.sampler.Sampler.close".
    """

    def __init__(self, marks: dict[Any, str] | None = None) -> None:
        self._marks = {function.__code__: name for function, name in (marks or {}).items()}
        self._seen: list[tuple[str, list[CodeType]]] = []
        self._mine = threading.local()
        self.calls: dict[str, list[str]] = {}

    def __enter__(self) -> CallTrace:
        self._begin_thread("main")
        self._before = sys.getprofile(), threading.getprofile()
        threading.setprofile(self._saw)
        sys.setprofile(self._saw)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before[0])
        threading.setprofile(self._before[1])
        self.calls = self.taken()

    def taken(self) -> dict[str, list[str]]:
        """Return the calls until now; see `calls`."""
        return {name: self._named(codes) for name, codes in list(self._seen) if codes}

    def forget(self) -> None:
        """Begin anew, on all threads."""
        for _, codes in list(self._seen):
            codes.clear()

    def _begin_thread(self, name: str) -> list[CodeType]:
        codes: list[CodeType] = []
        self._mine.codes = codes
        self._seen.append((name, codes))
        return codes

    def _saw(self, frame: FrameType, event: str, argument: Any) -> None:
        # Names are looked up afterwards: this runs for every call of every library.
        if event == "call":
            codes = getattr(self._mine, "codes", None)
            if codes is None:
                codes = self._begin_thread(threading.current_thread().name)
            codes.append(frame.f_code)

    def _named(self, codes: Iterable[CodeType]) -> list[str]:
        return [
            self._marks.get(code) or name_of(code)
            for code in list(codes)
            if code in self._marks or code.co_filename.startswith(PACKAGE)
        ]


class ChildTrace:
    """Trace a process from the code of an environment or an agent that lives in it.

    It begins within one call of `tick` and ends within another, which writes what was seen.

    Args:
        path: of a JSON file.
        marks: as for `CallTrace`.
        first, last: numbers of those calls, from 1 on.
    """

    def __init__(self, path: str, marks: dict[Any, str], first: int, last: int) -> None:
        self._path, self._trace = path, CallTrace(marks)
        self._first, self._last, self._n = first, last, 0

    def tick(self) -> None:
        """Count a call."""
        self._n += 1
        if self._n == self._first:
            self._trace.__enter__()
        elif self._n == self._last:
            self._trace.__exit__()
            Path(self._path).write_text(json.dumps(self._trace.calls["main"]))


@cache
def functions_of(path: str) -> dict[str, tuple[int, int]]:
    """Return the first and last lines of the functions of a file by qualified name, outer ones first."""
    found: dict[str, tuple[int, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                found[prefix + child.name] = first, child.end_lineno or first
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{prefix}{child.name}."
            visit(child, inner)

    visit(ast.parse(Path(path).read_text()), "")
    return found


@cache
def name_of(code: CodeType) -> str:
    """Return the name of a function of the package."""
    module = code.co_filename[len(PACKAGE) : -len(".py")].replace(os.sep, ".")
    line, around = code.co_firstlineno, ""
    # By their lines, as Python 3.10 does not keep qualified names of code.
    for name, (first, last) in functions_of(code.co_filename).items():
        if first <= line <= last:
            around = name
    return f"{module}.{around}" if around else module


@cache
def module_of(call: str) -> str:
    """Return the module of a call, "" for a mark."""
    parts = call.split(".")
    for n in range(len(parts), 0, -1):
        if (ROOT / "parllel" / "/".join(parts[:n])).with_suffix(".py").is_file():
            return ".".join(parts[:n])
    return ""


def passed(calls: Sequence[str]) -> tuple[int, int]:
    """Return how many files calls pass, and how often they come back to one that they have left."""
    entered = [module for module, _ in groupby(filter(None, map(module_of, calls)))]
    return len(set(entered)), len(entered) - len(set(entered))
