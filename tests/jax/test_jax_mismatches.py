"""Parts of `parllel.jax` and `parllel.torch` that were joined by mistake are refused; see the page."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import gymnasium as gym
import pytest

from parllel import BatchSpec, Seeds
from parllel import jax as parllel_jax
from parllel import torch as parllel_torch
from parllel.agents import NumpyHandler
from parllel.runners import check_parts
from parllel.runners.saved_parts import SavedParts
from parllel.transforms import EstimateAdvantage
from parllel_patterns import PPO_DEFAULTS, build_cages, build_sampler

PAGE = Path(__file__).parents[2] / "docs" / "mismatches.md"
SPEC = BatchSpec(T=8, B=2)
SETTINGS = {**PPO_DEFAULTS, "minibatches": 2}


class Parts:
    """An agent of each kind for the same cages, and what is made with them."""

    def __init__(self, stack):
        self.stack = stack
        self.cages = build_cages(
            partial(gym.make, "CartPole-v1"), SPEC.B, seeds=Seeds(0), stack=stack
        )
        self.jax, self.torch = (
            one.agent_for(self.cages[0].spaces, seeds=Seeds(1), hidden_sizes=(4,))
            for one in (parllel_jax, parllel_torch)
        )

    def ppo(self, of, agent):
        return of.PPO(agent, **SETTINGS, seed=2)

    def sampler(self, handler):
        made = build_sampler(SPEC, self.cages, handler, [], [EstimateAdvantage(0.99, 0.95)])
        return self.stack.enter_context(made)

    def checked(self, handler, algorithm):
        sampler = self.sampler(handler)
        check_parts(SPEC, sampler, algorithm)
        return SavedParts({}, sampler, algorithm, None, [])

    def of_jax(self):
        return self.checked(NumpyHandler(self.jax), self.ppo(parllel_jax, self.jax))


JAX_AGENT = r"parllel\.jax\.pg_agent\.PgAgent"
TORCH_AGENT = r"parllel\.torch\.agents\.pg_agent\.PgAgent"


def resumed(p):
    sampler = p.sampler(NumpyHandler(p.jax))
    state = SavedParts({}, sampler, p.ppo(parllel_jax, p.jax), None, []).state()
    SavedParts({}, sampler, p.ppo(parllel_torch, p.torch), None, []).load_state(state)


ROWS = {
    "jax-ppo-of-a-torch-agent": (
        lambda p: p.ppo(parllel_jax, p.torch),
        f"PPO: agent: expected a PgAgent of parllel.jax, got a {TORCH_AGENT}",
        lambda p: p.ppo(parllel_torch, p.torch),
    ),
    "jax-agent-of-torch-ppo": (
        lambda p: p.ppo(parllel_torch, p.jax),
        f"PPO: agent: expected an agent with a PyTorch model, got a {JAX_AGENT}",
        lambda p: p.ppo(parllel_jax, p.jax),
    ),
    "jax-agent-torch-handler": (
        lambda p: p.sampler(parllel_torch.TorchHandler(p.jax)),
        "PgAgent of parllel.jax: .*, got a torch.Tensor. Use NumpyHandler instead of TorchHandler",
        lambda p: p.sampler(NumpyHandler(p.jax)),
    ),
    "jax-agent-cpu-sampling-handler": (
        lambda p: parllel_torch.CpuSamplingHandler(p.jax),
        f"CpuSamplingHandler: agent: expected a PgAgent .*, got a {JAX_AGENT}. .*NumpyHandler",
        lambda p: parllel_torch.CpuSamplingHandler(p.torch),
    ),
    "jax-agent-small-policy-handler": (
        lambda p: parllel_torch.SmallPolicyHandler(p.jax),
        f"SmallPolicyHandler: agent: expected PgAgent .* itself, got {JAX_AGENT}",
        lambda p: parllel_torch.SmallPolicyHandler(p.torch),
    ),
    "jax-script-with-a-torch-agent": (
        lambda p: p.sampler(NumpyHandler(p.torch)),
        "NumpyHandler: agent: PgAgent has a PyTorch model; use TorchHandler",
        lambda p: p.sampler(parllel_torch.TorchHandler(p.torch)),
    ),
    "jax-ppo-of-torch-samples": (
        lambda p: p.checked(parllel_torch.TorchHandler(p.torch), p.ppo(parllel_jax, p.jax)),
        f"PPO trains a {JAX_AGENT}, but the BasicSampler samples with another {TORCH_AGENT}",
        Parts.of_jax,
    ),
    "jax-checkpoint-in-a-torch-run": (
        resumed,
        f"agent: {TORCH_AGENT} needs 'generator', but the state has only",
        lambda p: (saved := p.of_jax()).load_state(saved.state()),
    ),
}
every_row = pytest.mark.parametrize(("mistake", "said", "right"), ROWS.values(), ids=ROWS.keys())


@pytest.fixture
def parts():
    with ExitStack() as stack:
        yield Parts(stack)


@every_row
def test_a_mistake_is_refused_by_name(parts, mistake, said, right):
    with pytest.raises((TypeError, ValueError), match=said):
        mistake(parts)


@every_row
def test_its_neighbour_is_not(parts, mistake, said, right):
    right(parts)


def test_the_page_has_a_line_for_each_row_and_no_other():
    named = re.findall(r"^\| `(jax-[a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(named) == sorted(ROWS)
