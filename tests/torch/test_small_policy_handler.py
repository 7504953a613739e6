from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from ppo_setup import agent_of, ppo
from torch import nn

from parllel.agents import agent_examples
from parllel.buffers import (
    AgentSamples,
    EnvSamples,
    Field,
    Samples,
    allocate,
    insert_field,
)
from parllel.errors import WrongStateError
from parllel.torch import (
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    GaussianPgAgent,
    MultiDiscrete,
    PgAgent,
    PgModel,
    SmallPolicyHandler,
    TorchHandler,
)
from parllel.torch.models.tree_encoder import FlatEncoder
from parllel.types import BatchSpec

T = 6


def agitate(agent, scale=0.3):
    """Move the parameters to where policies are far from uniform."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in agent.model.parameters():
            p.add_(scale * torch.randn(p.shape, generator=generator))
    return agent


def categorical(shape=(4,), hidden=(64, 64)):
    return agitate(
        CategoricalPgAgent(PgModel(shape, CategoricalHead(3), hidden, seed=0), 3, seed=5)
    )


def multi_discrete(shape=(4,), hidden=(32,)):
    model = PgModel(shape, CategoricalHead(9), hidden, seed=0)
    return agitate(PgAgent(model, MultiDiscrete((2, 4, 3)), seed=5))


def shifted(shape=(4,), hidden=(16,)):
    model = PgModel(shape, CategoricalHead(3), hidden, seed=0)
    return agitate(CategoricalPgAgent(model, 3, start=-5, seed=5))


def shifted_multi_discrete(shape=(4,), hidden=(8,)):
    model = PgModel(shape, CategoricalHead(5), hidden, seed=0)
    return agitate(PgAgent(model, MultiDiscrete((2, 3), start=(7, -1)), seed=5))


def gaussian(shape=(4,), hidden=(64, 64), action_shape=(2, 3)):
    model = PgModel(shape, GaussianHead(action_shape, initial_log_std=-0.5), hidden, seed=0)
    return agitate(GaussianPgAgent(model, action_shape, seed=5))


def scalar_gaussian(shape=(4,), hidden=()):
    return gaussian(shape, hidden, ())


AGENTS = [
    categorical,
    multi_discrete,
    shifted,
    shifted_multi_discrete,
    gaussian,
    scalar_gaussian,
]


def make_samples(handler, B, observation, rows=T):
    """Allocate from examples and draw observations; the agent's are a field of their own."""
    action, agent_info = agent_examples(handler, observation)
    real = np.float32(0)
    samples = allocate(
        Samples(
            agent=AgentSamples(
                action=Field(action, dtype=action.dtype),
                agent_info=agent_info,
                advantage=real,
                return_=real,
                final_value=real,
            ),
            env=EnvSamples(
                observation=Field(observation, padding=1, dtype=observation.dtype),
                reward=real,
                terminated=False,
                truncated=False,
                done=False,
                env_info=None,
            ),
        ),
        BatchSpec(rows, B),
    )
    normalised = allocate(
        Field(observation, padding=1, dtype=observation.dtype), BatchSpec(rows, B)
    )
    rng = np.random.default_rng(3)
    for t in range(rows + 1):
        samples.env.observation[t] = 77  # what the agent must not see
        normalised[t] = (3 * rng.normal(size=(B, *observation.shape))).astype(observation.dtype)
    return insert_field(samples, "agent.observation", normalised)


class Batch:
    """A handler and its samples."""

    def __init__(self, handler, *, B=16, observation=None, rows=T):
        self.handler, self.B, self.rows = handler, B, rows
        cell = np.zeros(4, np.float32) if observation is None else observation
        self.samples = make_samples(handler, B, cell, rows)
        handler.bind(self.samples)

    def start(self):
        self.handler.sample_mode()
        self.handler.start_batch()

    def step(self, groups=None):
        for t in range(self.rows):
            for group in groups or [slice(0, self.B)]:
                self.handler.step(t, group)
        self.handler.bootstrap_value(self.rows, slice(0, self.B))

    def fill(self, groups=None):
        self.start()
        self.step(groups)
        return self

    @property
    def action(self):
        return np.array(self.samples.agent.action)

    @property
    def log_prob(self):
        return np.array(self.samples.agent.agent_info.log_prob)

    @property
    def value(self):
        field = self.samples.agent.agent_info.value
        return np.concatenate([np.array(field), np.array(field[self.rows])[None]])


def pair(make, **options):
    """Return batches of PyTorch's steps and of compiled ones, of equal agents."""
    agents = make(), make()
    return Batch(TorchHandler(agents[0]), **options), Batch(
        SmallPolicyHandler(agents[1]), **options
    )


def assert_same(theirs, ours, *, differing=0):
    """Compare batches; `differing` choices of actions may have been within rounding."""
    assert theirs.action.dtype == ours.action.dtype
    same = np.isclose(theirs.action, ours.action, rtol=1e-5, atol=1e-5)
    assert np.count_nonzero(~same) <= differing
    same = same.reshape(*same.shape[:2], -1).all(axis=2)
    # Sums of terms as large as the largest value; the roundings of float32 are 1.2e-7 of them.
    scale = max(1.0, float(np.abs(theirs.value).max()))
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-5, atol=1e-6 * scale)
    np.testing.assert_allclose(ours.log_prob[same], theirs.log_prob[same], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", AGENTS)
@pytest.mark.parametrize("B", [1, 16, 37])
def test_samples_are_those_of_the_torch_handler(make, B):
    theirs, ours = pair(make, B=B)
    for batch in (theirs, ours):
        batch.fill()
        batch.fill()  # the second batch has other noise
    assert_same(theirs, ours)
    assert len(np.unique(ours.action)) > 1


@pytest.mark.parametrize("make", [categorical, multi_discrete])
def test_choices_differ_only_within_rounding(make):
    theirs, ours = pair(make, B=1024, rows=50)
    theirs.fill()
    ours.fill()
    # Two of 50,000 sums lie within 1e-6 of each other so rarely that more would be a mistake.
    assert_same(theirs, ours, differing=5)


@pytest.mark.parametrize("make", AGENTS)
def test_halves_give_the_samples_of_the_whole(make):
    _, whole = pair(make)
    theirs, halves = pair(make)
    groups = [slice(8, 16), slice(0, 8)]
    whole.fill()
    halves.fill(groups)
    theirs.fill(groups)
    for name in ("action", "log_prob"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(halves, name))
    np.testing.assert_array_equal(whole.value, halves.value)
    assert_same(theirs, halves)


@pytest.mark.parametrize(
    "cell", [np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.float64)], ids=lambda x: str(x.dtype)
)
def test_observations_are_cast_as_the_model_casts_them(cell):
    def make():
        return categorical(shape=(2, 3))

    theirs, ours = pair(make, observation=cell)
    assert_same(theirs.fill(), ours.fill())


def test_float64_observations_are_only_rounded_once():
    agent = categorical()
    batch = Batch(SmallPolicyHandler(agent), observation=np.zeros(4, np.float64)).fill()
    seen = np.asarray(batch.samples.agent.observation)
    with torch.no_grad():
        value = agent.model.double()(torch.from_numpy(seen.reshape(-1, 4))).value
    np.testing.assert_allclose(batch.value[:T].reshape(-1), value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [categorical, gaussian])
def test_first_ratios_of_ppo_are_one(make):
    agent = make()
    batch = Batch(SmallPolicyHandler(agent)).fill()
    rng = np.random.default_rng(0)
    agent_samples = batch.samples.agent
    for _ in range(2):  # the second batch is sampled with the updated parameters
        for field in (agent_samples.advantage, agent_samples.return_):
            np.asarray(field)[:] = rng.normal(size=(T, 16))
        algorithm = ppo(agent, epochs=1, minibatches=1)
        inputs = algorithm.construct_agent_inputs(batch.samples)
        log_prob, _, value = agent.evaluate(action=inputs.action, **inputs.agent)
        ratio = (log_prob - inputs.log_prob).exp().detach()
        np.testing.assert_allclose(ratio, 1, rtol=0, atol=1e-4)
        np.testing.assert_allclose(value.detach(), inputs.value, rtol=1e-4, atol=1e-5)
        before = batch.value.copy()
        assert algorithm.optimize_agent(T * 16, batch.samples)["clip_fraction"] == 0
        batch.fill()
        assert np.abs(batch.value - before).max() > 1e-2


def test_parameters_of_a_checkpoint_count_from_the_next_batch():
    theirs, ours = pair(categorical)
    state = agitate(categorical(), 1.0).state()
    for batch in (theirs, ours):
        batch.fill()
        batch.handler.load_state(state)
        batch.fill()
    assert_same(theirs, ours)


@pytest.mark.parametrize("make", AGENTS)
def test_evaluation_is_that_of_the_torch_handler(make):
    theirs, ours = pair(make)
    observation = np.random.default_rng(9).normal(size=(50, 4)).astype(np.float32)
    actions = []
    for batch in (theirs, ours):
        batch.fill()
        batch.handler.eval_mode()
        batch.handler.start_batch()
        batch.step()
        actions.append(batch.handler.act(observation, slice(0, 50)))
        batch.handler.final_value(np.array([1, 2]), np.array([0, 3]), observation[:2])
    np.testing.assert_array_equal(*actions)
    np.testing.assert_array_equal(theirs.action, ours.action)
    np.testing.assert_array_equal(theirs.log_prob, ours.log_prob)
    np.testing.assert_array_equal(
        theirs.samples.agent.final_value, np.asarray(ours.samples.agent.final_value)
    )
    # Evaluation has not moved the generator.
    assert_same(theirs.fill(), ours.fill())


@pytest.mark.parametrize("mode", ["eval_mode", "train_mode"])
def test_mode_of_a_step_is_that_of_the_handler(mode):
    theirs, ours = pair(categorical)
    for batch in (theirs, ours):
        batch.start()
        getattr(batch.handler, mode)()
        batch.step()
    np.testing.assert_array_equal(theirs.action, ours.action)
    np.testing.assert_array_equal(theirs.log_prob, ours.log_prob)


def test_steps_without_a_batch_are_those_of_the_torch_handler():
    theirs, ours = pair(categorical)
    theirs.step()
    ours.step()
    np.testing.assert_array_equal(theirs.action, ours.action)
    with pytest.raises(WrongStateError, match="SmallPolicyHandler: no buffer is bound"):
        SmallPolicyHandler(categorical()).start_batch()


def test_another_buffer_can_be_bound():
    theirs, ours = pair(categorical)
    for batch in (theirs, ours):
        batch.fill()
        batch.samples = make_samples(batch.handler, 16, np.zeros(4, np.float32))
        batch.handler.bind(batch.samples)
        batch.fill()
    assert_same(theirs, ours)


class OtherModel(PgModel):
    pass


class OtherAgent(PgAgent):
    pass


class MoreInputs(SmallPolicyHandler):
    def agent_inputs(self, observation, rows, columns):
        return {"observation": observation, "rows": rows}


def hooked(agent):
    agent.model.critic.layers[0].register_forward_hook(lambda *_: None)
    return agent


def patched(agent):
    agent.model.policy.forward = lambda x: x
    return agent


def with_activation(agent):
    agent.model.policy.layers.append(nn.ReLU())
    return agent


def converted(agent, dtype):
    agent.model.to(dtype)
    return agent


def with_an_encoder():
    model = PgModel(FlatEncoder((4,)), CategoricalHead(3), (8,), seed=0)
    return CategoricalPgAgent(model, 3, seed=0)


def with_n_actions(n):
    return CategoricalPgAgent(PgModel((4,), CategoricalHead(3), (8,), seed=0), n, seed=0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: CategoricalPgAgent(
                OtherModel((4,), CategoricalHead(3), (8,), seed=0), 3, seed=0
            ),
            TypeError,
            "agent.model: expected PgModel itself, got OtherModel; TorchHandler takes any agent",
        ),
        (
            lambda: with_an_encoder(),
            TypeError,
            r"agent\.model\.encoder: expected a model without one, got a FlatEncoder; TorchHandler",
        ),
        (
            lambda: OtherAgent(categorical().model, categorical().distribution, seed=0),
            TypeError,
            "agent: expected PgAgent or CategoricalPgAgent or GaussianPgAgent itself, got OtherAgent",
        ),
        (
            lambda: PgAgent(gaussian().model, categorical().distribution, seed=0),
            TypeError,
            "agent.distribution: expected Gaussian itself, got Categorical",
        ),
        (
            lambda: hooked(categorical()),
            ValueError,
            r"agent.model.critic.layers.0: .* without hooks",
        ),
        (lambda: patched(categorical()), ValueError, r"agent.model.policy: .* its class's forward"),
        (lambda: with_activation(categorical()), TypeError, "policy.layers.3: .* got ReLU"),
        (
            lambda: converted(categorical(), torch.float64),
            ValueError,
            "policy.layers.0.weight: expected float32 on the CPU, got torch.float64 on cpu",
        ),
        (
            lambda: converted(categorical(), torch.device("meta")),
            ValueError,
            "policy.layers.0.weight: expected float32 on the CPU, got torch.float32 on meta",
        ),
        (lambda: with_n_actions(4), ValueError, r"4 outputs last, got \[4, 8, 3\]"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_agents_that_compute_something_else_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        SmallPolicyHandler(make())


def test_other_inputs_are_refused():
    with pytest.raises(TypeError, match="MoreInputs: agent_inputs is overridden"):
        MoreInputs(categorical())


def test_agent_is_neither_changed_nor_copied():
    agent = categorical()
    before = copy.deepcopy(agent.state()["model"])
    batch = Batch(SmallPolicyHandler(agent)).fill()
    assert batch.handler.agent is agent
    for name, array in agent.state()["model"].items():
        np.testing.assert_array_equal(array, before[name])


def test_a_deviation_of_each_state_is_refused():
    with pytest.raises(
        ValueError, match="head: state_dependent: expected a deviation that is the same"
    ):
        SmallPolicyHandler(agent_of("state_dependent"))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"activation": "relu"}, ValueError, "activation: expected 'tanh', got 'relu'"),
        ({"trunk": (4,)}, TypeError, "encoder: expected a model without one, got a MlpEncoder"),
    ],
)
def test_layers_that_are_not_compiled_are_refused(options, error, said):
    with pytest.raises(error, match=said):
        SmallPolicyHandler(agent_of("gaussian", **options))
