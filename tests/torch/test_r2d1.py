"""R2D1 and its agent: sequences with resets, targets and gradients against plain float64, step by step."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch

from parllel.buffers.named_tuple import NamedTuple
from parllel.replays import Sequences
from parllel.torch import R2D1, RecurrentQAgent, RecurrentQModel
from parllel.torch.agents.sequences import segments, state_after, values_of_sequences
from parllel.torch.algos.r2d1 import rescaled, unrescaled

SETTINGS = {
    "learning_rate": 1e-3,
    "learning_rate_anneal_steps": None,
    "double": True,
    "rescale_values": True,
    "target_update_interval": 5,
    "tau": 1.0,
    "huber_delta": None,
    "clip_grad_norm": None,
    "initial_epsilon": None,
    "final_epsilon": 0.0,
    "epsilon_anneal_steps": 1,
}
A, SIZE, RNN = 3, 4, 6
WARM_UP, LENGTH, N_STEP = 3, 5, 2
P = WARM_UP + LENGTH + N_STEP


def make_agent(cell="lstm", prev_action=True, epsilon=0.0, **model):
    network = RecurrentQModel(
        (SIZE,), A, (8,), RNN, cell=cell, prev_action=prev_action, seed=1, **model
    )
    return RecurrentQAgent(network, A, prev_action=prev_action, epsilon=epsilon, seed=0)


class Recorder:
    """Stands for a replay."""

    def __init__(self):
        self.errors = []

    def update_priorities(self, errors):
        self.errors.append(np.array(errors))


def draw(cell="lstm", n=6, warm_up=WARM_UP, seed=0, reset_rate=0.2):
    rng = np.random.default_rng(seed)
    n_positions = warm_up + LENGTH + N_STEP
    names = ("hidden", "cell") if cell == "lstm" else ("hidden",)
    reset = rng.random((n_positions, n)) < reset_rate
    action = rng.integers(0, A, (n_positions, n))
    previous = np.concatenate([rng.integers(0, A, (1, n)), action[:-1]])
    steps = rng.integers(1, N_STEP + 1, (LENGTH, n))
    return Sequences(
        replay=Recorder(),
        warm_up=warm_up,
        observation=rng.normal(size=(n_positions, n, SIZE)).astype(np.float32),
        previous_action=np.where(reset, 0, previous),
        action=action,
        reset=reset,
        initial_rnn_state=NamedTuple(
            **{name: rng.normal(size=(n, RNN)).astype(np.float32) for name in names}
        ),
        reward=(3 * rng.normal(size=(LENGTH, n))).astype(np.float32),
        discount=rng.choice([0.0, 0.9, 0.81], (LENGTH, n)).astype(np.float32),
        next_position=warm_up + np.arange(LENGTH)[:, None] + steps,
        valid=rng.random((LENGTH, n)) < 0.8,
        weight=rng.uniform(0.2, 1, n).astype(np.float32),
    )


def step_by_step(model, samples, column, with_gradients, prev_action=True):
    """Return values [P, A] of one column, from one call per position."""
    state = NamedTuple(
        **{
            name: torch.from_numpy(part[column : column + 1]).double()
            for name, part in samples.initial_rnn_state._asdict().items()
        }
    )
    values = []
    for t in range(len(samples.reset)):
        if samples.reset[t, column]:
            state = model.initial_state(1)
        if t == samples.warm_up:
            state = NamedTuple(**{k: v.detach() for k, v in state._asdict().items()})
        observation = torch.from_numpy(samples.observation[t, column]).double()[None, None]
        before = torch.tensor([[samples.previous_action[t, column]]]) if prev_action else None
        value, state = model(observation, state, before)
        values.append(value[0, 0] if with_gradients else value[0, 0].detach())
    return torch.stack(values)


def h(x):
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def h_inverse(y):
    """By bisection, not by the formula."""
    low, high = -1e7, 1e7
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < y else (low, middle)
    return low


def reference(algorithm, samples, prev_action=True):
    online = copy.deepcopy(algorithm.agent.model).double().requires_grad_(True)
    target = copy.deepcopy(algorithm.target_network.module).double()
    W, n = samples.warm_up, samples.reward.shape[1]
    losses, errors = [], np.zeros((LENGTH, n))
    for j in range(n):
        values = step_by_step(online, samples, j, True, prev_action)
        following = step_by_step(target, samples, j, False, prev_action)
        for i in range(LENGTH):
            if not samples.valid[i, j]:
                continue
            y = float(samples.reward[i, j])
            if samples.discount[i, j]:
                at = samples.next_position[i, j]
                chooser = (values if algorithm.double else following)[at].tolist()
                value = following[at, chooser.index(max(chooser))].item()
                value = h_inverse(value) if algorithm.rescale_values else value
                y += float(samples.discount[i, j]) * value
            y = h(y) if algorithm.rescale_values else y
            error = values[W + i, samples.action[W + i, j]] - y
            losses.append(float(samples.weight[j]) * 0.5 * error**2)
            errors[i, j] = abs(error.item())
    loss = sum(losses) / len(losses)
    return loss.item(), errors, torch.autograd.grad(loss, list(online.parameters()))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.7])
@pytest.mark.parametrize(("cell", "warm_up"), [("lstm", 3), ("gru", 3), ("lstm", 0)])
@pytest.mark.parametrize(("double", "rescale"), [(True, True), (False, False), (True, False)])
@pytest.mark.few(12)
def test_gradients_are_those_of_the_definition(cell, warm_up, rate, double, rescale):
    agent = make_agent(cell, dueling=True, head_sizes=(5,))
    algorithm = R2D1(agent, **{**SETTINGS, "double": double, "rescale_values": rescale})
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in algorithm.target_network.module.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator))
    samples = draw(cell, warm_up=warm_up, reset_rate=rate)
    loss, errors, gradients = reference(algorithm, samples)
    got = algorithm.optimize_agent(0, samples)
    np.testing.assert_allclose(float(got["loss"]), loss, rtol=1e-4)
    valid = samples.valid
    np.testing.assert_allclose(samples.replay.errors[0][valid], errors[valid], rtol=1e-3, atol=2e-5)
    largest = max(float(g.abs().max()) for g in gradients)
    for p, right in zip(agent.model.parameters(), gradients, strict=True):
        np.testing.assert_allclose(p.grad, right, atol=2e-5 * largest)
    assert algorithm.update_method == "flat parameters"


def test_steps_that_are_not_valid_are_not_read():
    algorithm = R2D1(make_agent(), **SETTINGS)
    samples = draw(reset_rate=0.0)
    samples.valid[2:] = False
    samples.action[WARM_UP + 2 :] = 77
    samples.previous_action[WARM_UP + 3 :] = 0
    samples.reward[2:] = np.nan
    assert np.isfinite(float(algorithm.optimize_agent(0, samples)["loss"]))


def test_value_rescaling_and_its_inverse():
    x = torch.tensor([-300.0, -2, -0.01, 0, 1e-4, 0.5, 30, 1000])
    np.testing.assert_allclose(rescaled(x), [h(v) for v in x.tolist()], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(unrescaled(rescaled(x)), x, rtol=1e-4, atol=1e-6)


def test_segments_have_each_cell_once():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        T, N = rng.integers(1, 7, 2)
        reset = rng.random((T, N)) < 0.4
        cut = segments(reset)
        L, S = cut.taken.shape
        # The place of each cell holds it, and no two share a place.
        assert (cut.taken.reshape(-1)[cut.back] == np.arange(T * N).reshape(T, N)).all()
        assert len(np.unique(cut.back)) == T * N
        for t, j in itertools.product(range(T), range(N)):
            row, segment = divmod(int(cut.back[t, j]), S)
            assert cut.column[segment] == j
            begins = t == 0 or reset[t, j]
            assert (row == 0) == begins
            if begins:
                assert cut.anew[segment] == reset[t, j]
            else:
                assert cut.back[t - 1, j] == (row - 1) * S + segment
        assert L <= T


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_sequences_equal_steps(cell):
    agent = make_agent(cell)
    samples = draw(cell, reset_rate=0.3)
    state = NamedTuple(
        **{k: torch.from_numpy(v) for k, v in samples.initial_rnn_state._asdict().items()}
    )
    inputs = {"prev_action": torch.from_numpy(samples.previous_action)}
    observation = torch.from_numpy(samples.observation)
    got = values_of_sequences(agent.model, observation, state, samples.reset, inputs)
    model = copy.deepcopy(agent.model).double()
    for j in range(6):
        expected = step_by_step(model, samples, j, False)
        torch.testing.assert_close(got[:, j].double(), expected, atol=1e-5, rtol=1e-4)
    whole = state_after(agent.model, observation, state, samples.reset, inputs)
    first = {"prev_action": inputs["prev_action"][:4]}
    half = state_after(agent.model, observation[:4], state, samples.reset[:4], first)
    rest = {"prev_action": inputs["prev_action"][4:]}
    then = state_after(agent.model, observation[4:], half, samples.reset[4:], rest)
    for name in whole._fields:
        torch.testing.assert_close(whole._get(name), then._get(name))


def test_agent_remembers_state_and_action():
    agent = make_agent(epsilon=0.4)
    rng = torch.Generator().manual_seed(2)
    observation = torch.randn(7, 2, SIZE, generator=rng)
    initial = agent.initial_rnn_state(slice(0, 2))
    noise = agent.draw_noise(7, 2)
    actions = []
    for t in range(7):
        if t == 4:
            agent.reset_one(np.array([1]))
        action, info = agent.step(observation[t], env_indices=slice(0, 2), noise=noise[t])
        actions.append(action.clone())
        assert info is None
    action = torch.stack(actions)
    previous = torch.cat([torch.zeros(1, 2, dtype=torch.int64), action[:-1]])
    reset = np.zeros((7, 2), np.bool_)
    reset[4, 1] = True
    previous[4, 1] = 0
    values = agent.action_values(
        observation, initial_rnn_state=initial, prev_action=previous, reset=reset
    )
    greedy = noise < 0
    assert greedy.any()
    assert (values.argmax(-1) == action)[greedy].all()
    # Evaluation has a memory of its own.
    before = [leaf.tolist() for leaf in agent.state()["memory"]]
    agent.eval_mode()
    agent.reset()
    agent.step(observation[0])
    agent.sample_mode()
    assert [leaf.tolist() for leaf in agent.state()["memory"]] == before


def test_state_of_an_agent_continues():
    agent, other = make_agent(epsilon=0.5), make_agent(epsilon=0.1)
    observation = torch.randn(3, 2, SIZE, generator=torch.Generator().manual_seed(2))
    agent.step(observation[0], env_indices=slice(0, 2))
    other.load_state(agent.state())
    for t in (1, 2):
        one, two = (a.step(observation[t], env_indices=slice(0, 2))[0] for a in (agent, other))
        assert torch.equal(one, two)


def test_bad_arguments():
    with pytest.raises(ValueError, match="count from 0"):
        RecurrentQAgent(make_agent().model, A, prev_action=True, start=1, seed=0)
    with pytest.raises(ValueError, match="expected initial_rnn_state"):
        make_agent().action_values(torch.zeros(2, 3, SIZE))
    with pytest.raises(TypeError, match="expected a RecurrentQAgent"):
        R2D1(make_agent().model, **SETTINGS)


def test_learns_to_remember():
    """The first observation tells which action is rewarded at the end of the episode."""
    agent = make_agent(prev_action=False, epsilon=1.0)
    algorithm = R2D1(agent, **{**SETTINGS, "learning_rate": 5e-3, "target_update_interval": 20})
    rng = np.random.default_rng(0)
    n, T = 32, 4
    for _ in range(250):
        samples = draw(n=n, warm_up=0, seed=1)
        told = rng.integers(0, A, n)
        samples.observation = np.zeros((T, n, SIZE), np.float32)
        samples.observation[0, np.arange(n), told] = 1
        samples.reset = np.zeros((T, n), np.bool_)
        samples.reset[0] = True
        samples.action = rng.integers(0, A, (T, n))
        samples.reward = np.zeros((T, n), np.float32)
        samples.reward[-1] = samples.action[-1] == told
        samples.discount = np.full((T, n), 0.9, np.float32)
        samples.discount[-1] = 0
        samples.next_position = np.minimum(np.arange(T)[:, None] + np.ones((1, n), int), T - 1)
        samples.valid = np.ones((T, n), np.bool_)
        samples.weight = np.ones(n, np.float32)
        algorithm.optimize_agent(0, samples)
    observation = torch.zeros(T, A, SIZE)
    observation[0, torch.arange(A), torch.arange(A)] = 1
    values = agent.action_values(observation, initial_rnn_state=agent.model.initial_state(A))
    assert values[-1].argmax(-1).tolist() == [0, 1, 2]
