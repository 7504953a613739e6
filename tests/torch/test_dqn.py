"""DQN: targets, losses and gradients against plain float64, three ways to compute them, and learning."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from parllel.buffers.named_tuple import NamedTuple
from parllel.replays import Transitions
from parllel.torch import DQN, CnnEncoder, MlpEncoder, QAgent, QModel
from parllel.torch.models.cnn_encoder import Convolutions
from parllel.torch.models.tree_encoder import FlatEncoder, OneHotEncoder, TreeEncoder

SETTINGS = {
    "learning_rate": 1e-3,
    "learning_rate_anneal_steps": None,
    "double": True,
    "target_update_interval": 5,
    "tau": 1.0,
    "huber_delta": 1.0,
    "clip_grad_norm": 10.0,
    "initial_epsilon": None,
    "final_epsilon": 0.0,
    "epsilon_anneal_steps": 1,
}
N, A, SIZE = 9, 3, 4


class Recorder:
    """Stands for a replay."""

    def __init__(self):
        self.errors = []

    def update_priorities(self, errors):
        self.errors.append(np.array(errors))


def transitions(observe, n=N, start=0, seed=0, **fields):
    rng = np.random.default_rng(seed)
    own = {
        "action": rng.integers(start, start + A, n),
        "reward": 3 * rng.normal(size=n),
        "discount": rng.choice([0.0, 0.9, 0.81], n),
        "weight": rng.uniform(0.1, 1, n),
        **fields,
    }
    return Transitions(
        replay=Recorder(),
        observation=observe(rng, n),
        next_observation=observe(rng, n),
        action=np.asarray(own.pop("action"), np.int64),
        **{name: np.asarray(value, np.float32) for name, value in own.items()},
    )


def vectors(rng, n):
    return rng.normal(size=(n, SIZE)).astype(np.float32)


def masked_parts(rng, n):
    return NamedTuple(
        seen=rng.normal(size=(n, SIZE)).astype(np.float32),
        choice=rng.integers(0, 2, n),
        # Some forbid everything, which is ignored.
        mask=rng.integers(0, 2, (n, A)).astype(np.int8),
    )


def images(rng, n):
    return rng.integers(0, 256, (n, 2, 6, 6)).astype(np.uint8)


def plain(activation="relu", dueling=False, sizes=(16, 8)):
    return QModel((SIZE,), A, sizes, seed=1, dueling=dueling, activation=activation)


def with_trunk(dueling=True, sizes=(8,)):
    generator = torch.Generator().manual_seed(3)
    trunk = MlpEncoder(SIZE, (12, 10), generator=generator, activation="relu")
    return QModel(trunk, A, sizes, generator, dueling=dueling, activation="tanh")


def with_mask(dueling=True):
    parts = {
        "seen": FlatEncoder((SIZE,)),
        "choice": OneHotEncoder([2], [0]),
        "mask": FlatEncoder((A,)),
    }
    return QModel(TreeEncoder(parts), A, (8,), seed=2, dueling=dueling, action_mask="mask")


def with_images(dueling=True):
    generator = torch.Generator().manual_seed(3)
    trunk = CnnEncoder((2, 6, 6), Convolutions((3,), (2,), (1,), 7), generator=generator)
    return QModel(trunk, A, (), generator, dueling=dueling)


KNOWN = [
    (plain, vectors),
    (lambda: plain("tanh", dueling=True), vectors),
    (lambda: plain(sizes=()), vectors),
    (with_trunk, vectors),
    (lambda: with_trunk(dueling=False, sizes=()), vectors),
    (with_mask, masked_parts),
    (lambda: with_mask(dueling=False), masked_parts),
]
ALL = [*KNOWN, (with_images, images)]


def make(model=None, start=0, **settings):
    agent = QAgent(model or plain(), A, start=start, seed=0)
    return DQN(agent, **{**SETTINGS, **settings})


def perturbed(algorithm):
    """Give the target network other parameters than the learned network."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for p in algorithm.target_network.module.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator))
        for p in algorithm.agent.model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator))
    return algorithm


def reference(algorithm, samples):
    """Return loss, errors and gradients of the definition in float64, one transition after the other."""
    online = copy.deepcopy(algorithm.agent.model).double().requires_grad_(True)
    target = copy.deepcopy(algorithm.target_network.module).double()
    observation, following = (
        _doubles(tree) for tree in (samples.observation, samples.next_observation)
    )
    values, next_target, next_online = online(observation), target(following), online(following)
    losses, errors = [], []
    for i in range(len(samples.action)):
        y = float(samples.reward[i])
        if samples.discount[i] != 0:
            chooser = next_online if algorithm.double else next_target
            row = chooser[i].tolist()
            y += float(samples.discount[i]) * next_target[i, row.index(max(row))].item()
        error = values[i, samples.action[i] - algorithm.agent.start] - y
        delta = algorithm.huber_delta
        small = abs(error.item()) <= delta
        loss = 0.5 * error**2 if small else delta * (error.abs() - 0.5 * delta)
        losses.append(float(samples.weight[i]) * loss)
        errors.append(abs(error.item()))
    loss = sum(losses) / len(losses)
    return loss.item(), np.array(errors), torch.autograd.grad(loss, list(online.parameters()))


def _doubles(tree):
    if isinstance(tree, NamedTuple):
        return NamedTuple(**{name: torch.from_numpy(part) for name, part in tree._asdict().items()})
    tensor = torch.from_numpy(tree)
    return tensor.double() if tensor.is_floating_point() else tensor


@pytest.mark.parametrize(
    ("case", "update"),
    [
        (case, update)
        for case in range(len(ALL))
        for update in ("flat", "auto", "autograd")
        # The gradients of images are not written out.
        if case < len(KNOWN) or update != "flat"
    ],
)
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("delta", [1.0, 0.3, None])
def test_gradients_are_those_of_the_definition(case, update, double, delta):
    make_model, observe = ALL[case]
    settings = {"double": double, "huber_delta": delta, "update": update, "learning_rate": 1e-30}
    algorithm = perturbed(make(make_model(), start=2, clip_grad_norm=None, **settings))
    samples = transitions(observe, start=2)
    if observe is masked_parts:
        allow_taken(samples, start=2)
    loss, errors, gradients = reference(algorithm, samples)
    got = gradients_of(algorithm, samples)
    np.testing.assert_allclose(float(got["loss"]), loss, rtol=2e-5)
    np.testing.assert_allclose(samples.replay.errors[0], errors, rtol=2e-4, atol=1e-5)
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    np.testing.assert_allclose(got["gradient_norm"], norm, rtol=2e-5)
    np.testing.assert_allclose(float(got["td_error"]), errors.mean(), rtol=2e-5)
    largest = max(float(g.abs().max()) for g in gradients)
    for ours, right in zip(got["gradients"], gradients, strict=True):
        np.testing.assert_allclose(ours, right, atol=3e-6 * largest)
    expected = {"flat": "flat", "autograd": "autograd"}.get(update)
    if expected is None:
        expected = "flat" if case < len(KNOWN) else "flat parameters"
    assert algorithm.update_method == expected


def gradients_of(algorithm, samples):
    diagnostics = dict(algorithm.optimize_agent(0, samples))
    if algorithm.update_method == "flat":
        flat = algorithm._adam.prepare()
        gradients = [g.copy() for g in flat.split(flat.gradients)]
    else:
        gradients = [p.grad.numpy() for p in algorithm.agent.model.parameters()]
    return {**diagnostics, "gradients": gradients}


def allow_taken(samples, start=0):
    """Allow the actions that were taken; a mask that forbids all is left alone."""
    rows = samples.observation.mask.any(axis=1)
    samples.observation.mask[rows, samples.action[rows] - start] = 1


class Table(nn.Module):
    """Values of two states and two actions."""

    def __init__(self, values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, observation):
        return self.values[observation.long()]


def table_algorithm(online, target, **settings):
    algorithm = DQN(QAgent(Table(online), 2, seed=0), **{**SETTINGS, **settings})
    with torch.no_grad():
        algorithm.target_network.module.values.copy_(torch.tensor(target))
    return algorithm


def table_transition(discount, following=1, reward=1.0):
    return Transitions(
        replay=Recorder(),
        observation=np.array([0.0]),
        next_observation=np.array([following]),
        action=np.array([1]),
        reward=np.array([reward], np.float32),
        discount=np.array([discount], np.float32),
        weight=np.ones(1, np.float32),
    )


@pytest.mark.parametrize(
    ("discount", "double", "expected"),
    [
        # y = 1 + 0.5 * max(10, 20)
        (0.5, False, 11.0),
        # The learned network prefers action 0: y = 1 + 0.5 * 10.
        (0.5, True, 6.0),
        # Three steps: the replay gives 0.5^3 and the sum of rewards.
        (0.125, False, 3.5),
        # Terminated.
        (0.0, True, 1.0),
    ],
)
def test_targets_by_hand(discount, double, expected):
    algorithm = table_algorithm([[0.0, 0.0], [9.0, 8.0]], [[0.0, 0.0], [10.0, 20.0]], double=double)
    samples = table_transition(discount)
    inputs = algorithm.construct_agent_inputs(samples)
    assert algorithm.target(inputs).tolist() == [expected]
    algorithm.optimize_agent(0, samples)
    assert samples.replay.errors[0].tolist() == [expected]


@pytest.mark.parametrize("update", ["flat", "autograd"])
def test_next_observation_of_a_terminated_episode_is_not_used(update):
    algorithm = make(update=update)
    samples = transitions(vectors, discount=np.zeros(N))
    samples.next_observation[...] = np.nan
    assert np.isfinite(float(algorithm.optimize_agent(0, samples)["loss"]))


@pytest.mark.parametrize(("make_model", "observe"), KNOWN)
def test_many_updates_agree_among_all_ways(make_model, observe):
    results = []
    for update in ("flat", "auto", "autograd"):
        algorithm = make(make_model(), update=update, target_update_interval=3, tau=0.5)
        if update == "auto":
            # A hook selects the second way.
            algorithm.agent.model.register_forward_hook(lambda *_: None)
        for i in range(20):
            algorithm.optimize_agent(0, known_samples(observe, i))
        results.append(algorithm)
    methods = [one.update_method for one in results]
    assert methods == ["flat", "flat parameters", "autograd"]
    flat, *others = results
    for other in others:
        for network in (lambda a: a.agent.model, lambda a: a.target_network.module):
            for ours, right in zip(
                network(flat).parameters(), network(other).parameters(), strict=True
            ):
                torch.testing.assert_close(ours, right, atol=2e-5, rtol=2e-4)


def known_samples(observe, seed):
    samples = transitions(observe, seed=seed)
    if observe is masked_parts:
        allow_taken(samples)
    return samples


@pytest.mark.parametrize("update", ["flat", "autograd"])
@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_target_follows_every_few_updates(update, tau):
    algorithm = perturbed(make(update=update, tau=tau, target_update_interval=3))
    target = [p.clone() for p in algorithm.target_network.module.parameters()]
    for i in range(3):
        now = list(algorithm.target_network.module.parameters())
        assert all(torch.equal(one, other) for one, other in zip(now, target, strict=True))
        algorithm.optimize_agent(0, transitions(vectors, seed=i))
    for before, after, online in zip(
        target,
        algorithm.target_network.module.parameters(),
        algorithm.agent.model.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(after, before + tau * (online - before), atol=1e-6, rtol=1e-6)


def test_exploration_schedule():
    algorithm = make(initial_epsilon=1.0, final_epsilon=0.2, epsilon_anneal_steps=100)
    seen = []
    for steps in (0, 50, 100, 1000):
        algorithm.before_sampling(steps)
        seen.append(float(algorithm.agent.epsilon[0]))
    np.testing.assert_allclose(seen, [1.0, 0.6, 0.2, 0.2], rtol=1e-6)
    ladder = DQN(QAgent(plain(), A, epsilon=[0.1, 0.4], seed=0), **SETTINGS)
    ladder.before_sampling(0)
    np.testing.assert_allclose(ladder.agent.epsilon, [0.1, 0.4])


def test_learning_rate_falls():
    algorithm = make(learning_rate=0.1, learning_rate_anneal_steps=100)
    rates = [
        algorithm.optimize_agent(t, transitions(vectors))["learning_rate"] for t in (0, 25, 200)
    ]
    np.testing.assert_allclose(rates, [0.1, 0.075, 0.0])


@pytest.mark.parametrize("update", ["flat", "autograd"])
def test_resumed_equals_uninterrupted(update):
    whole, first, second = (make(update=update) for _ in range(3))
    for i in range(14):
        whole.optimize_agent(0, transitions(vectors, seed=i))
    for i in range(7):
        first.optimize_agent(0, transitions(vectors, seed=i))
    second.agent.load_state(first.agent.state())
    second.load_state(first.state())
    for i in range(7, 14):
        second.optimize_agent(0, transitions(vectors, seed=i))
    for one, other in zip(
        whole.agent.model.parameters(), second.agent.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    assert second.n_updates == 14


@pytest.mark.parametrize("update", ["flat", "autograd"])
def test_infinite_reward_is_refused_and_nothing_changes(update):
    algorithm = make(update=update, huber_delta=None)
    before = [p.clone() for p in algorithm.agent.model.parameters()]
    with pytest.raises(FloatingPointError, match="not finite"):
        algorithm.optimize_agent(0, transitions(vectors, reward=np.full(N, np.inf)))
    now = list(algorithm.agent.model.parameters())
    assert all(torch.equal(one, other) for one, other in zip(now, before, strict=True))


def test_action_that_does_not_exist():
    with pytest.raises(ValueError, match="expected 0 to 2, got 7"):
        make().optimize_agent(0, transitions(vectors, action=[7] * N))


class Munchausen(DQN):
    """Subclass that changes the target."""

    def target(self, inputs):
        return super().target(inputs) + 1


def test_overridden_method_is_called():
    algorithm = perturbed(Munchausen(QAgent(plain(), A, seed=0), **SETTINGS))
    plain_one = perturbed(make())
    ours, right = (one.optimize_agent(0, transitions(vectors)) for one in (algorithm, plain_one))
    np.testing.assert_allclose(float(ours["target"]), right["target"] + 1, rtol=1e-5)
    assert algorithm.update_method == "flat parameters"
    with pytest.raises(TypeError, match="target is overridden"):
        Munchausen(QAgent(plain(), A, seed=0), **SETTINGS, update="flat")


def test_hook_added_between_batches_is_called():
    algorithm, calls = make(), []
    algorithm.optimize_agent(0, transitions(vectors))
    assert algorithm.update_method == "flat"
    algorithm.agent.model.register_forward_hook(lambda *_: calls.append(1))
    algorithm.before_sampling(0)
    algorithm.optimize_agent(0, transitions(vectors))
    assert calls
    assert algorithm.update_method == "flat parameters"


def test_dropout_is_on_in_updates_only():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.modes = plain(), []

        def forward(self, observation):
            self.modes.append(self.training)
            return self.q(observation)

    algorithm = make(Dropping(), double=False)
    algorithm.optimize_agent(0, transitions(vectors))
    assert algorithm.agent.model.modes == [True]
    assert not algorithm.agent.model.training


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"tau": 1.5}, ValueError),
        ({"tau": 0.0}, ValueError),
        ({"target_update_interval": 0}, ValueError),
        ({"initial_epsilon": 1.5}, ValueError),
        ({"final_epsilon": -0.5}, ValueError),
        ({"huber_delta": 0.0}, ValueError),
        ({"update": "fast"}, ValueError),
        ({"learning_rate": "x"}, TypeError),
    ],
)
def test_bad_settings(settings, error):
    with pytest.raises(error, match=next(iter(settings))):
        make(**settings)


def test_agent_of_another_kind():
    with pytest.raises(TypeError, match="expected a QAgent"):
        DQN(plain(), **SETTINGS)


def test_learns_a_chain():
    """Walk right along six states, where stepping left ends with a small reward."""
    length, rng = 6, np.random.default_rng(0)
    # Every transition of the chain: reward 1 at its right end, 0.1 at its left.
    state = np.repeat(np.arange(length), 2)
    action = np.tile([0, 1], length)
    after = np.where(action == 1, state + 1, state - 1)
    reward = np.where(after == length, 1.0, np.where(after < 0, 0.1, 0.0))
    ends = (after == length) | (after < 0)
    eye = np.eye(length, dtype=np.float32)
    agent = QAgent(QModel((length,), 2, (32,), seed=0, dueling=True), 2, seed=0)
    algorithm = DQN(agent, **{**SETTINGS, "learning_rate": 1e-2, "target_update_interval": 20})
    for _ in range(600):
        rows = rng.integers(0, len(state), 32)
        algorithm.optimize_agent(
            0,
            Transitions(
                replay=Recorder(),
                observation=eye[state[rows]],
                next_observation=eye[np.clip(after[rows], 0, length - 1)],
                action=action[rows],
                reward=reward[rows].astype(np.float32),
                discount=np.where(ends[rows], 0, 0.9).astype(np.float32),
                weight=np.ones(32, np.float32),
            ),
        )
    values = agent.action_values(torch.from_numpy(eye)).detach().numpy()
    assert (values.argmax(1) == 1).all()
    np.testing.assert_allclose(values[:, 1], 0.9 ** np.arange(length - 1, -1, -1), atol=0.05)
