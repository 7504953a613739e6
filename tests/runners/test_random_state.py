from __future__ import annotations

import random

import numpy as np
import pytest

from parllel.runners.saved_parts import load_random_state, random_state
from parllel.runs import load_state, save_state


def draw():
    # A normal draw of numpy's legacy generator keeps half of a pair for the next.
    return [random.random(), random.gauss(0, 1), np.random.random(), np.random.normal()]


def test_the_global_generators_go_on_where_they_were(tmp_path):
    before = random.getstate(), np.random.get_state()
    try:
        random.seed(4)
        np.random.seed(5)
        draw()
        save_state(tmp_path / "state.zip", random_state())
        expected = [draw() for _ in range(3)]
        random.seed(6)
        np.random.seed(7)
        load_random_state(load_state(tmp_path / "state.zip"))
        assert [draw() for _ in range(3)] == expected
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def test_torch_is_among_them_once_it_is_imported(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(8)
    save_state(tmp_path / "state.zip", random_state())
    expected = torch.rand(3)
    torch.manual_seed(9)
    load_random_state(load_state(tmp_path / "state.zip"))
    assert torch.equal(torch.rand(3), expected)
