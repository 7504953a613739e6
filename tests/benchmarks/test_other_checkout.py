from __future__ import annotations

import pytest

from benchmarks.harness.other_checkout import OtherCheckout

BENCHMARK = """
import sys
import parllel
def answer(word, end):
    for _ in sys.stdin:
        if end:
            raise SystemExit(1)
        print(parllel.NAME, word, flush=True)
"""


def test_its_own_package_answers_each_turn(tmp_path):
    (tmp_path / "parllel").mkdir()
    (tmp_path / "parllel" / "__init__.py").write_text("NAME = 'the other'\n")
    file = tmp_path / "bench.py"
    file.write_text(BENCHMARK)
    with OtherCheckout(str(tmp_path), str(file), "answer", "says", False) as other:
        assert [other.turn(), other.turn()] == ["the other says"] * 2
    with OtherCheckout(str(tmp_path), str(file), "answer", "says", True) as other:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="has ended"):
                other.turn()


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a checkout of parllel, got "):
        OtherCheckout(str(tmp_path), __file__, "answer")
