"""Digests of functions: what changes them, what does not, and what has none."""

from __future__ import annotations

import pytest
from numba import njit
from python_code import output_of

from parllel.system.code_digest import code_digest
from parllel.system.compilation import compiled

PAGE = """
import math
import numpy as np
import numba
SPEED = 2.0
TABLE = np.arange(3)
@numba.njit
def helper(x):
    return x * SPEED
def function(x, *, y=1):
    # A comment.
    return helper(x) + math.sqrt(y) + TABLE[0] + np.float32(1)
"""


def digest_of(page):
    names = {"__name__": "some"}
    exec(compile(page, "some.py", "exec", dont_inherit=True), names)
    return code_digest(names["function"])


def test_it_is_the_same_elsewhere_and_whatever_the_lines():
    code = (
        f"from parllel.system.code_digest import code_digest\n{PAGE}\nprint(code_digest(function))"
    )
    digest = digest_of(PAGE)
    assert len(digest) == 64
    assert output_of(code).strip() == digest
    assert digest_of(PAGE.replace("# A comment.", "# Another one.\n\n")) == digest
    assert digest_of(PAGE.replace("SPEED", "PACE")) != digest  # though that would not matter


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SPEED = 2.0", "SPEED = 2.5"),
        ("SPEED = 2.0", "SPEED = 2"),
        ("SPEED = 2.0", "SPEED = np.float32(2)"),
        ("np.arange(3)", "np.arange(1, 4)"),
        ("np.arange(3)", "np.arange(3.0)"),
        ("np.arange(3)", "(0, 1, 2)"),
        ("x * SPEED", "x + SPEED"),
        ("x * SPEED", "x * SPEED * 1"),
        ("y=1", "y=2"),
        ("math.sqrt", "math.log"),
        ("np.float32(1)", "np.float64(1)"),
        ("numba.njit", "numba.njit(fastmath=True)"),
    ],
)
def test_what_matters_changes_it(old, new):
    assert digest_of(PAGE.replace(old, new)) != digest_of(PAGE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SPEED = 2.0", "SPEED = object()"),
        ("SPEED = 2.0", "SPEED = {'a': 1}"),
        ("SPEED = 2.0", "class SPEED: pass"),
        ("SPEED = 2.0", "import parllel as SPEED"),
        ("SPEED = 2.0", "from parllel.types import BatchSpec as SPEED"),
        ("TABLE = np.arange(3)", "TABLE = np.array([object()])"),
        # Numba calls no plain function, but may have been told what to call in its place.
        ("@numba.njit\n", ""),
    ],
)
def test_what_may_change_unnoticed_has_none(old, new):
    assert digest_of(PAGE.replace(old, new)) is None


def test_functions_that_call_each_other():
    @njit
    def even(n):
        return n == 0 or odd(n - 1)

    @njit
    def odd(n):
        return n != 0 and even(n - 1)

    assert code_digest(odd) is None  # in closures, which numba does not find again
    recursive = "def function(n):\n    return n if n < 2 else function(n - 1)\n"
    names = {}
    exec(f"import numba\n@numba.njit\n{recursive}", names)
    assert len(code_digest(names["function"])) == 64


def test_closures_over_numbers_count():
    def power(n):
        return lambda x: x**n

    one, same, other = (code_digest(power(n)) for n in (2, 2, 3))
    assert one == same != other


def test_old_variants_are_removed_from_the_cache(tmp_path, monkeypatch):
    code = f"""
import sys
from parllel.system import compilation
compilation.VARIANTS = 3
sys.path.insert(0, {str(tmp_path)!r})
import some
for some.SPEED in range(8):
    fast = compilation.compiled("i8(i8)", whole=True)(some.move)
    print(fast(0))
"""
    (tmp_path / "some.py").write_text("SPEED = 0\ndef move(x):\n    return x + SPEED\n")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert output_of(code).split() == [str(n) for n in range(8)]
    left = [path.suffix for path in (tmp_path / "cache").rglob("some.move.*")]
    # The limit is looked at before a new one is added.
    assert left.count(".nbi") == left.count(".nbc") == 4


def test_a_function_of_the_same_name_is_another():
    made = []
    for n in (1, 2):
        names = {"n": n}
        exec(compile("def shifted(x):\n    return x + n\n", __file__, "exec"), names)
        made.append(compiled("i8(i8)", whole=True)(names["shifted"])(10))
    assert made == [11, 12]


def test_options_count_and_a_name_that_is_not_bound_yet_has_no_digest():
    def function(x):
        return later(x)

    assert code_digest(function) is None
    plain = code_digest(lambda x: x)
    assert code_digest(lambda x: x, fastmath=True) not in (plain, None)

    def later(x):
        return x
