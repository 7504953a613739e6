"""Actions for gathered environments have the bits of those that handlers write into rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from multi_agent_setup import independent, make_env, make_twins, shared
from ppo_setup import categorical, gaussian, perturb

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.buffers import buffer_asarray, buffer_leaves, buffer_map
from parllel.cages import VectorizedCage
from parllel.testing import CountingEnv
from parllel.testing.dummy_agents import CountingAgent
from parllel.torch import (
    CategoricalHead,
    CategoricalPgAgent,
    CpuSamplingHandler,
    PgModel,
    RecurrentPgAgent,
    RecurrentPgModel,
    SmallPolicyHandler,
    TorchHandler,
)
from parllel.torch.distributions.categorical import Categorical
from parllel_patterns import allocate_samples

T, B = 3, 24
# Numbers of rows whose products PyTorch rounds in different ways. It does so where memory is not aligned to
# 16 bytes, too, so that groups start at multiples of four.
GROUPS = (slice(0, 1), slice(4, 6), slice(8, 11), slice(12, 16), slice(16, 22))
MOVE = spaces.Box(-1, 1, (2,), np.float32)


class CountedEnv(CountingEnv):
    """Observes four numbers, as the agents want them."""

    def __init__(self, action_space: Any = None) -> None:
        super().__init__(action_space=action_space or spaces.Discrete(3))
        self.observation_space = spaces.Box(-1, 1, (4,), np.float32)


def recurrent() -> RecurrentPgAgent:
    model = RecurrentPgModel((4,), CategoricalHead(3), (), 5, cell="gru", prev_action=True, seed=0)
    return RecurrentPgAgent(
        model, Categorical(3), prev_action=np.int64(0), store_rnn_state=True, seed=0
    )


class NumberedHandler(TorchHandler):
    """Gives the agent one number more, that of the environment."""

    def agent_inputs(self, observation: Any, rows: Any, columns: Any) -> dict[str, Any]:
        number = torch.arange(B, dtype=torch.float32)[columns].unsqueeze(-1)
        return {"observation": torch.cat((observation, number), -1)}


def numbered() -> NumberedHandler:
    return NumberedHandler(
        CategoricalPgAgent(PgModel((5,), CategoricalHead(3), (8,), seed=0), 3, seed=0)
    )


def handled(kind: Callable[[Any], Any], make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: kind(make())


move = partial(CountedEnv, MOVE)
plain, moving = partial(categorical, torch.float32), partial(gaussian, torch.float32)
CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "numpy": (lambda: NumpyHandler(CountingAgent(3)), CountedEnv),
    "torch": (handled(TorchHandler, plain), CountedEnv),
    "torch, box": (handled(TorchHandler, moving), move),
    "on the CPU": (handled(CpuSamplingHandler, plain), CountedEnv),
    "small": (handled(SmallPolicyHandler, plain), CountedEnv),
    "small, box": (handled(SmallPolicyHandler, moving), move),
    "recurrent": (handled(TorchHandler, recurrent), CountedEnv),
    "recurrent on the CPU": (handled(CpuSamplingHandler, recurrent), CountedEnv),
    "ensemble": (handled(TorchHandler, shared), make_twins),
    "independent": (handled(TorchHandler, independent), make_env),
    "inputs": (numbered, CountedEnv),
}


def sampled(handler: Any, make: Callable[[], Any]) -> Any:
    """Return samples with random observations and what the handler writes for them."""
    with VectorizedCage([make] * B) as cage:
        samples = allocate_samples([cage], BatchSpec(T, B), handler)
    rng = np.random.default_rng(0)
    for _, leaf in buffer_leaves(samples.agent.observation):
        np.asarray(leaf)[...] = rng.normal(size=leaf.shape)
    handler.bind(samples)
    handler.start_batch()
    for t in range(T):
        for columns in GROUPS:
            handler.step(t, columns)
    return samples


def cells(tree: Any, t: int, indices: Any) -> Any:
    """Gather what environments have in a row."""
    return buffer_map(lambda leaf: leaf[t, indices], tree)


def assert_same(found: Any, expected: Any, where: str) -> None:
    """Compare trees bit by bit."""
    found, expected = dict(buffer_leaves(found)), dict(buffer_leaves(expected))
    assert found.keys() == expected.keys(), where
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf, err_msg=f"{where}: {path}")


@pytest.mark.parametrize("as_numpy", [False, True], ids=["noise as drawn", "noise in numpy"])
@pytest.mark.parametrize("case", CASES)
def test_gathered_environments_get_what_rows_get(case: str, as_numpy: bool) -> None:
    make_handler, make = CASES[case]
    samples = buffer_asarray(sampled(make_handler(), make).agent)
    handler = make_handler()
    noise = handler.agent.draw_noise(T, B)
    if as_numpy:
        noise = buffer_map(handler.to_numpy, noise)
    for t in range(T):
        for columns in reversed(GROUPS):
            indices = np.arange(B)[columns]
            action, info = handler.decide(
                cells(samples.observation, t, indices), indices, cells(noise, t, indices)
            )
            assert all(isinstance(leaf, np.ndarray) for _, leaf in buffer_leaves(action))
            assert_same(action, cells(samples.action, t, indices), f"row {t}, action")
            assert_same(info, cells(samples.agent_info, t, indices), f"row {t}, info")


@pytest.mark.parametrize("case", CASES)
def test_an_evaluation_takes_the_actions_alone(case: str) -> None:
    make_handler, make = CASES[case]
    observation = cells(
        buffer_asarray(sampled(make_handler(), make).agent.observation), 0, slice(4)
    )
    handlers = make_handler(), make_handler()
    for handler in handlers:
        handler.eval_mode()
    action, _ = handlers[0].decide(observation, slice(0, 4))
    assert_same(handlers[1].act(observation, slice(0, 4)), action, "actions")


@pytest.mark.parametrize("kind", [CpuSamplingHandler, SmallPolicyHandler])
def test_copies_of_parameters_follow(kind: Callable[[Any], Any]) -> None:
    agents = plain(), plain()
    handler, learned = kind(agents[0]), TorchHandler(agents[1])
    observation = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    noise = learned.agent.draw_noise(1, 5)[0]

    def values(handler: Any) -> Any:
        return handler.decide(observation, slice(0, 5), noise)[1].value

    before = values(handler)
    perturb(agents[1])
    handler.load_state(learned.state())
    np.testing.assert_allclose(values(handler), values(learned), rtol=1e-5)
    assert not np.allclose(values(handler), before)
    for agent in agents:
        perturb(agent)
    # Until it is asked for, a copy is of parameters that all fit each other.
    assert not np.allclose(values(handler), values(learned))
    handler.update_parameters()
    np.testing.assert_allclose(values(handler), values(learned), rtol=1e-5)


def test_a_small_policy_refuses_what_compiled_code_would_misread() -> None:
    handler = SmallPolicyHandler(plain())
    noise, observation = np.zeros((5, 3), np.float32), np.zeros((5, 4), np.float32)
    for wrong, message in (
        (
            (observation[:, :3], noise),
            r"observation: expected 4 numbers, got cells of shape \(3,\)",
        ),
        ((observation.astype(complex), noise), "observation: expected one of .*, got complex128"),
        (
            (observation, noise[:4]),
            r"noise: expected float32 of shape \(5, 3\), got float32 \(4, 3\)",
        ),
        ((observation, noise.astype(float)), r"noise: expected .*, got float64 \(5, 3\)"),
    ):
        with pytest.raises(ValueError, match=message):
            handler.decide(wrong[0], slice(0, 5), wrong[1])
    action, info = handler.decide(observation[:0], slice(0, 0), noise[:0])
    assert action.shape == info.value.shape == (0,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_on_a_gpu_takes_noise_from_numpy() -> None:
    agent = plain().copy_to_device("cuda")
    handler = TorchHandler(agent)
    noise = agent.draw_noise(1, 5)[0]
    observation = np.ones((5, 4), np.float32)
    expected = handler.decide(observation, slice(0, 5), noise)
    found = handler.decide(observation, slice(0, 5), noise.cpu().numpy())
    assert_same(found[0], expected[0], "action")
    assert_same(found[1], expected[1], "info")
