from __future__ import annotations

import pytest
import torch
from torch import nn

from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler, handler

SMALL = nn.Linear(10, 10)
LARGE = nn.Linear(1000, 1000)


@pytest.fixture
def four(monkeypatch):
    """Let PyTorch begin with four threads, as on a machine of four cores, and nothing chosen."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    monkeypatch.setattr(handler, "_default_number", 4)
    monkeypatch.setattr(handler, "_chosen_number", None)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    yield monkeypatch
    torch.set_num_threads(before)


def test_a_handler_gives_a_small_model_one_thread(four):
    agent = CategoricalPgAgent(PgModel((4,), CategoricalHead(2), (64, 64), seed=0), 2, seed=0)
    TorchHandler(agent).close()
    assert torch.get_num_threads() == 1
    TorchHandler(agent, threads=3).close()
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("models", "expected"),
    [([SMALL], 1), ([LARGE], 4), ([SMALL, LARGE], 4), ([], 4)],
)
def test_threads_go_by_the_largest_model(four, models, expected):
    assert handler.set_threads(models) == torch.get_num_threads() == expected


def test_a_large_model_has_its_threads_whatever_comes_before_and_after(four):
    found = [handler.set_threads([model]) for model in (SMALL, LARGE, SMALL)]
    assert found == [1, 4, 4]


def test_what_was_chosen_stays(four):
    torch.set_num_threads(2)
    assert handler.set_threads([SMALL]) == torch.get_num_threads() == 2
    torch.set_num_threads(4)
    four.setenv("OMP_NUM_THREADS", "4")
    assert handler.set_threads([SMALL]) == torch.get_num_threads() == 4


def test_no_thread_is_refused():
    with pytest.raises(ValueError, match="threads: expected at least 1, got 0"):
        handler.set_threads([SMALL], 0)
