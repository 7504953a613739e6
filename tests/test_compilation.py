from __future__ import annotations

import subprocess
import sys

import pytest

from parllel.compilation import compiled


def test_the_first_function_imports_numba():
    code = (
        "import sys\n"
        "from parllel.compilation import compiled\n"
        "decorate = compiled('i8(i8)')\n"
        "print('numba' in sys.modules)\n"
        "exec(compile('def successor(n): return n + 1', 'x.py', 'exec'))\n"
        "print(decorate(successor)(41), 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "42 True"]


@pytest.mark.parametrize("error", [RuntimeError("no locator"), PermissionError("read-only")])
@pytest.mark.parametrize("signatures", [("i8(i8)",), ("i4(i4)", "f8(f8)"), ()])
def test_code_is_compiled_also_where_no_cache_can_be_written(monkeypatch, error, signatures):
    from numba.core.dispatcher import Dispatcher

    def enable_caching(self):
        raise error

    monkeypatch.setattr(Dispatcher, "enable_caching", enable_caching)

    @compiled(*signatures, nogil=True)
    def successor(number):
        return number + 1

    assert len(successor.signatures) == len(signatures)
    assert successor(41) == 42
    assert successor.targetoptions["nogil"]


def test_one_decorator_serves_several_functions():
    decorate = compiled(error_model="numpy")

    @decorate
    def reciprocal(x):
        return 1 / x

    @decorate
    def negative(x):
        return -x

    assert reciprocal(0.0) == float("inf")
    assert negative(2) == -2
