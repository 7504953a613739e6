from __future__ import annotations

import numpy as np
import pytest
import torch

from parllel.torch.models.heads import CategoricalHead, GaussianHead, Head
from parllel.torch.models.mlp_model import MlpEncoder, MlpModel
from parllel.torch.models.pg_model import PgModel
from parllel.torch.models.recurrent_pg_model import RecurrentPgModel


def mlp(*sizes, gain=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    first, *hidden, last = sizes
    return MlpModel(first, hidden, last, output_gain=gain, generator=generator)


def test_forward_is_tanh_between_linear_maps():
    model = mlp(6, 8, 7, 3).double()
    with torch.no_grad():
        for layer in model.layers:
            layer.bias.normal_(generator=torch.Generator().manual_seed(1))
    x = np.random.default_rng(0).normal(size=(5, 2, 3))
    h = x.reshape(5, 6)
    for i, layer in enumerate(model.layers):
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        h = h @ weight.T + bias
        h = np.tanh(h) if i < 2 else h
    np.testing.assert_allclose(model(torch.from_numpy(x)).detach().numpy(), h, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_integers_are_cast(dtype):
    model = mlp(4, 8, 2)
    x = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1]], dtype=dtype)
    assert torch.equal(model(x), model(x.float()))


def test_observations_without_dimensions_are_one_number():
    model = mlp(1, 8, 2)
    assert torch.equal(model(torch.tensor([1, 2, 3])), model(torch.tensor([[1.0], [2.0], [3.0]])))


def test_weights_are_orthogonal_with_their_gains():
    model = mlp(16, 64, 64, 4, gain=0.01)
    gains = (2**0.5, 2**0.5, 0.01)
    for layer, gain in zip(model.layers, gains, strict=True):
        singular = torch.linalg.svdvals(layer.weight.detach())
        torch.testing.assert_close(singular, torch.full_like(singular, gain), rtol=1e-4, atol=0)
        assert not layer.bias.any()


def test_seeds_decide_on_the_weights_and_the_global_generator_rests():
    before = torch.get_rng_state()
    x = torch.ones(1, 4)
    models = [PgModel((4,), CategoricalHead(2), (8,), seed=seed) for seed in (1, 1, 2)]
    first, same, other = [model(x).params for model in models]
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


def test_categorical_model_has_separate_trunks():
    model = PgModel((2, 3), CategoricalHead(5), (8, 8), seed=0)
    output = model(torch.rand(7, 2, 3))
    assert output.params.shape == (7, 5)
    assert output.value.shape == (7,)
    output.value.sum().backward()
    assert all(p.grad is None for p in model.policy.parameters())
    assert all(p.grad is not None for p in model.critic.parameters())


@pytest.mark.parametrize("action_shape", [(), (1,), (3,), (2, 3)])
def test_gaussian_model_gives_means_in_the_shape_of_the_action(action_shape):
    model = PgModel((4,), GaussianHead(action_shape, initial_log_std=-0.5), (8,), seed=0)
    (mean, log_std), value = model(torch.rand(7, 4))
    assert mean.shape == (7, *action_shape)
    assert value.shape == (7,)
    assert log_std is model.head.log_std
    assert log_std.requires_grad
    assert torch.equal(log_std.detach(), torch.full(action_shape, -0.5))


class BetaHead(Head):
    def params(self, outputs):
        return tuple(outputs.exp().unflatten(-1, (2, -1)).unbind(-2))

    def inputs_of(self, action):
        return action.repeat(1, 1, 2)


def test_models_take_a_head_of_your_own():
    (a, b), value = PgModel((4,), BetaHead(6), (8,), seed=0)(torch.rand(7, 4))
    assert (a.shape, b.shape, value.shape) == ((7, 3), (7, 3), (7,))
    model = RecurrentPgModel((4,), BetaHead(6), (), 5, cell="gru", prev_action=True, seed=0)
    ((a, b), value), _ = model(torch.rand(2, 7, 4), model.initial_state(7), torch.rand(2, 7, 3))
    assert (a.shape, b.shape, value.shape) == ((2, 7, 3), (2, 7, 3), (2, 7))


def test_sizes_below_one_are_refused():
    with pytest.raises(ValueError, match=r"every size must be at least 1, got \[4, 0, 2\]"):
        mlp(4, 0, 2)


def test_weights_do_not_depend_on_the_number_of_threads():
    before = torch.get_num_threads()
    try:
        made = []
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            generator = torch.Generator().manual_seed(0)
            made.append(MlpModel(4, [64, 64], 1, output_gain=1.0, generator=generator))
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*(model.parameters() for model in made), strict=True):
        assert torch.equal(one, other)


def test_a_trunk_gives_activated_features():
    generator = torch.Generator().manual_seed(0)
    encoder = MlpEncoder(6, [5, 4], generator=generator, activation="relu")
    observation = torch.randn(7, 2, 3, dtype=torch.float64, generator=generator)
    first, second = encoder.layers
    x = observation.flatten(1).float()
    expected = second(first(x).clamp(min=0)).clamp(min=0)
    torch.testing.assert_close(encoder(observation), expected)
    assert encoder.n_features == 4


@pytest.mark.parametrize("kind", [MlpModel, MlpEncoder])
def test_an_unknown_activation_is_refused(kind):
    options = {"output_size": 1, "output_gain": 1.0} if kind is MlpModel else {}
    with pytest.raises(ValueError, match=r"expected one of \['tanh', 'relu'\], got 'gelu'"):
        kind(2, [3], generator=torch.Generator(), activation="gelu", **options)


def test_a_trunk_without_layers_is_refused():
    with pytest.raises(ValueError, match="MlpEncoder: hidden_sizes: expected at least one layer"):
        MlpEncoder(2, [], generator=torch.Generator())


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_a_deviation_may_be_an_output_of_the_network(shape):
    head = GaussianHead(shape, initial_log_std=-0.5, state_dependent=True)
    model = PgModel(4, head, (8,), seed=0, policy_gain=0.3)
    assert "head.log_std" not in dict(model.named_parameters())
    x = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    mean, log_std = model(x).params
    assert mean.shape == log_std.shape == (7, *shape)
    outputs = model.policy(x).reshape(7, 2, -1)
    assert torch.equal(mean.reshape(7, -1), outputs[:, 0])
    assert torch.equal(log_std.reshape(7, -1), outputs[:, 1] - 0.5)
    assert log_std.std() > 0


def test_previous_actions_of_a_network_with_deviations_have_their_own_size():
    head = GaussianHead(2, initial_log_std=0.0, state_dependent=True)
    model = RecurrentPgModel((3,), head, (), 4, cell="gru", prev_action=True, seed=0)
    (params, value), _ = model(
        torch.zeros(5, 6, 3), model.initial_state(6), prev_action=torch.ones(5, 6, 2)
    )
    assert params.mean.shape == params.log_std.shape == (5, 6, 2)
    assert value.shape == (5, 6)
