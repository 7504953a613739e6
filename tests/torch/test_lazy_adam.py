"""An optimiser that is made late does what one does that was there from the start."""

from __future__ import annotations

import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from parllel.torch.algos.lazy_adam import LazyAdam

OPTIONS = {"lr": 0.1, "eps": 1e-5, "fused": True}


def parameters():
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 2), (2,))]


def update(optimizer, some, number):
    generator = torch.Generator().manual_seed(number)
    for parameter in some:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def assert_equal(some, others):
    for one, other in zip(some, others, strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())


@pytest.mark.parametrize("when", ["before it is made", "after"])
def test_it_goes_on_from_a_state_as_adam_does(when):
    expected = parameters()
    adam = torch.optim.Adam(expected, **OPTIONS)
    mine = parameters()
    first = LazyAdam(mine, **OPTIONS)
    for number in range(3):
        update(adam, expected, number)
        update(first.optimizer, mine, number)
    assert_equal(mine, expected)
    second = LazyAdam(mine, **OPTIONS)
    if when == "after":
        assert not second.optimizer.state
    second.load_state(first.state())
    # What was loaded is what is saved, whether there was an update in between or not.
    again = LazyAdam(mine, **OPTIONS)
    again.load_state(copy.deepcopy(second.state()))
    for number in range(3, 6):
        update(adam, expected, number)
        update(again.optimizer, mine, number)
    assert_equal(mine, expected)


@pytest.mark.parametrize("made", [False, True])
def test_a_state_of_other_parameters_is_refused_at_once(made):
    other = LazyAdam(parameters()[:1], **OPTIONS).state()
    mine = LazyAdam(parameters(), **OPTIONS)
    if made:
        assert mine.optimizer is mine.optimizer
    with pytest.raises(ValueError, match="doesn't match the size"):
        mine.load_state(other)
    assert len(mine.state()["param_groups"][0]["params"]) == 2


PREPARED = """
import sys
from gymnasium.spaces import Box, Discrete
from parllel import Seeds
from parllel.algos import TransformingAlgorithm
from parllel.cages import Spaces
from parllel.torch import PPO, agent_for
from parllel_patterns import PPO_DEFAULTS

agent = agent_for(Spaces(Box(-1, 1, (3,)), Discrete(2), "small"), seeds=Seeds(0))
algorithm = TransformingAlgorithm(PPO(agent, **PPO_DEFAULTS, seed=0), [])
before = set(sys.modules)
algorithm.prepare()
prepared = set(sys.modules)
algorithm.state()
print("torch._dynamo" in before, "torch._dynamo" in prepared, sorted(set(sys.modules) - prepared))
"""


@pytest.mark.timeout(
    300
)  # a process that imports torch and its compiler, beside whatever else runs
def test_a_prepared_algorithm_imports_nothing_for_its_state():
    done = subprocess.run(
        [sys.executable, "-c", PREPARED], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False True []\n"
