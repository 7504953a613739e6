from __future__ import annotations

import mmap
import os
import time

import numpy as np
import pytest
from python_code import output_of

from parllel.system.compilation import compiled, compiles, seconds_compiling
from parllel.system.waits import available_kinds
from parllel.system.waits.compiled_wait import CompiledWait


def test_the_first_function_imports_numba():
    code = (
        "import sys\n"
        "from parllel.system.compilation import compiled\n"
        "decorate = compiled('i8(i8)')\n"
        "print('numba' in sys.modules)\n"
        "exec(compile('def successor(n): return n + 1', 'x.py', 'exec'))\n"
        "print(decorate(successor)(41), 'numba' in sys.modules)"
    )
    assert output_of(code).splitlines() == ["False", "42 True"]


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


def test_only_compilation_is_timed_not_the_cache(tmp_path, monkeypatch):
    (tmp_path / "some.py").write_text(
        "from parllel.system.compilation import compiled\n"
        "@compiled('i8(i8)')\n"
        "def successor(n):\n    return n + 1\n"
    )
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = (
        "import some\n"
        "from parllel.system.compilation import seconds_compiling\n"
        "print(some.successor(41), seconds_compiling() > 0)"
    )
    assert output_of(code).split() == ["42", "True"]
    assert output_of(code).split() == ["42", "False"]


def test_functions_that_are_compiled_when_they_are_called_are_timed_too():
    @compiled(cache=False)
    def successor(n):
        return n + 1

    before = seconds_compiling()
    assert successor(1) == 2
    compiling_s = seconds_compiling() - before
    assert compiling_s > 0
    assert successor(2) == 3
    assert seconds_compiling() - before == compiling_s


def test_compilation_within_a_compilation_is_timed_once():
    @compiled(cache=False)
    def inner(n):
        return n + 1

    @compiled(cache=False)
    def outer(n):
        return inner(n) + inner(2 * n)

    before, began = seconds_compiling(), time.perf_counter()
    assert outer(1) == 5
    assert 0 < seconds_compiling() - before <= time.perf_counter() - began


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


WHAT_A_DEBUGGER_SEES = """
import numpy as np
from parllel.system.compilation import compiled, compiles, seconds_compiling
from parllel.system.waits import available_kinds, make_wait
from parllel.system.waits.sleep_slots import SleepSlots
from parllel.transforms.returns import discounted_returns

lines = np.zeros(64, np.int32)
start = -lines.ctypes.data % 64 // 4
wait = make_wait(lines[start : start + 16].reshape(1, 16), sleep_slots=SleepSlots(1, 1))
wait.post(0, 5)
assert wait.wait(0, 4, 1.0) == 5

out = np.zeros((2, 1), np.float32)
no = np.zeros((2, 1), bool)
zero = np.zeros((2, 1), np.float32)
discounted_returns(np.ones((2, 1), np.float32), no, no, zero, np.full(1, 4, np.float32), 0.5, out)
assert out.ravel().tolist() == [2.5, 3.0], out
print(wait.kind, available_kinds(), type(compiled("i8(i8)")(lambda n: n)).__name__)
"""


@pytest.mark.parametrize("imported_first", [False, True])
def test_without_a_compiler_the_next_best_wait_is_taken(imported_first):
    code = ("import numba\n" if imported_first else "") + WHAT_A_DEBUGGER_SEES
    printed = output_of(code, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert printed == "semaphore ['semaphore'] function\n"


def test_compiler_switched_off_in_the_program_counts_too(monkeypatch):
    import numba

    assert compiles()
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert not compiles()
    assert "compiled" not in available_kinds()
    with pytest.raises(ValueError, match=r"expected numba .*, and numba with DISABLE_JIT"):
        CompiledWait(np.frombuffer(mmap.mmap(-1, 64), np.int32).reshape(1, 16))


def successor(number):
    return number + 1


@pytest.mark.parametrize(
    ("ending", "content", "signatures"),
    [("nbi", b"", ("i8(i8)",)), ("nbc", b"\0" * 200, ("i8(i8)",)), ("nbi", b"\x80\x04.", ())],
)
def test_broken_files_of_the_cache_are_replaced(monkeypatch, tmp_path, signatures, content, ending):
    from numba import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    assert compiled(*signatures)(successor)(41) == 42
    files = list(tmp_path.rglob("*.nb?"))
    assert len(files) == 2
    for file in files:
        if file.suffix == f".{ending}":
            file.write_bytes(content)
    assert compiled(*signatures)(successor)(41) == 42
    # What was broken has been written anew: the next process loads it.
    again = compiled(*signatures)(successor)
    assert again(41) == 42
    assert sum(again.stats.cache_hits.values()) == 1


def test_files_of_the_cache_that_cannot_be_replaced_are_left_alone(monkeypatch, tmp_path):
    from numba import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    compiled("i8(i8)")(successor)
    for file in tmp_path.rglob("*.nbi"):
        file.write_bytes(b"")

    def refuse(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._save_index", refuse)
    assert compiled("i8(i8)")(successor)(41) == 42
