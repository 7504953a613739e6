from __future__ import annotations

import numpy as np
import pytest
import torch

from parllel.torch.models.cnn_encoder import CONVOLUTIONS_2013, CnnEncoder, Convolutions
from parllel.torch.models.heads import CategoricalHead, GaussianHead
from parllel.torch.models.pg_model import PgModel


def encoder(shape, channels=(3, 5), kernels=(4, 2), strides=(2, 1), n=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    convolutions = Convolutions(channels, kernels, strides, n)
    return CnnEncoder(shape, convolutions, generator=generator)


def pixels(*shape):
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8))


def convolved(images, weight, bias, stride):
    """Return images [N, H, W, C] seen through windows, by numpy; weight: [outputs, C, k, k]."""
    k = weight.shape[-1]
    windows = np.lib.stride_tricks.sliding_window_view(images, (k, k), axis=(1, 2))
    seen = np.einsum("nhwckl,ockl->nhwo", windows[:, ::stride, ::stride], weight)
    return np.maximum(seen + bias, 0)


def test_features_are_those_that_numpy_computes():
    cnn = encoder((2, 12, 10))
    with torch.no_grad():
        for layer in (*cnn.convolutions, cnn.last):
            layer.bias.normal_(generator=torch.Generator().manual_seed(1))
    images = pixels(4, 2, 12, 10)
    x = images.numpy().transpose(0, 2, 3, 1) / 255
    for layer, stride in zip(cnn.convolutions, (2, 1), strict=True):
        x = convolved(x, layer.weight.detach().numpy(), layer.bias.detach().numpy(), stride)
    flat = x.transpose(0, 3, 1, 2).reshape(4, -1)
    weight, bias = cnn.last.weight.detach().numpy(), cnn.last.bias.detach().numpy()
    features = cnn(images)
    assert features.shape == (4, cnn.n_features) == (4, 6)
    np.testing.assert_allclose(
        features.detach().numpy(), np.maximum(flat @ weight.T + bias, 0), atol=1e-5
    )


def test_bytes_are_scaled_and_stay_as_they_were():
    cnn = encoder((2, 12, 10))
    images = pixels(4, 2, 12, 10)
    before = images.clone()
    torch.testing.assert_close(cnn(images), cnn(images.float() / 255))
    assert torch.equal(images, before)
    numbers = torch.rand(4, 2, 12, 10)
    before = numbers.clone()
    cnn(numbers)
    assert torch.equal(numbers, before)


@pytest.mark.parametrize(
    ("shape", "as_channels_first"),
    [
        ((16, 14), lambda x: x[:, None]),
        ((16, 14, 3), lambda x: x.permute(0, 3, 1, 2)),
        ((4, 16, 14, 3), lambda x: x.permute(0, 1, 4, 2, 3).flatten(1, 2)),
        ((4, 3, 16, 14), lambda x: x.flatten(1, 2)),
    ],
)
def test_images_are_seen_alike_in_every_layout(shape, as_channels_first):
    images = pixels(5, *shape)
    same = as_channels_first(images)
    assert torch.equal(encoder(shape)(images), encoder(same.shape[1:])(same))


def test_weights_are_orthogonal_and_come_from_the_seed():
    before = torch.get_rng_state()
    first, same, other = [encoder((2, 12, 10), seed=seed) for seed in (1, 1, 2)]
    for layer in (*first.convolutions, first.last):
        singular = torch.linalg.svdvals(layer.weight.detach().flatten(1))
        torch.testing.assert_close(singular, torch.full_like(singular, 2**0.5))
        assert not layer.bias.any()
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
    assert not torch.equal(first.last.weight, other.last.weight)
    assert torch.equal(before, torch.get_rng_state())


def test_arithmetic_in_fewer_bits_gives_features_and_gradients_in_float32():
    images = pixels(6, 4, 36, 36)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    exact, rough = [
        CnnEncoder((4, 36, 36), CONVOLUTIONS_2013, compute_dtype=dtype, generator=generator)
        for dtype, generator in zip((None, torch.bfloat16), generators, strict=True)
    ]
    expected, features = exact(images), rough(images)
    assert features.dtype == torch.float32
    assert not torch.equal(features, expected)
    torch.testing.assert_close(features, expected, atol=0.03, rtol=0.03)
    features.sum().backward()
    assert {p.grad.dtype for p in rough.parameters()} == {torch.float32}
    assert exact.double()(images).dtype == torch.float64


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"at least 4 pixels at convolution 0, got \[3, 3\]"):
        encoder((3, 3, 3))
    with pytest.raises(ValueError, match="2 to 4 dimensions, got \\(7,\\)"):
        encoder((7,))


def test_heads_share_the_encoder():
    generator = torch.Generator().manual_seed(0)
    model = PgModel(encoder((12, 10)), CategoricalHead(5), (), seed=generator)
    logits, value = model(pixels(7, 12, 10))
    assert (logits.shape, value.shape) == ((7, 5), (7,))
    value.sum().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())
    (head,) = model.policy.layers
    assert head.weight.grad is None
    assert torch.linalg.svdvals(head.weight.detach()).max() == pytest.approx(0.01, rel=1e-4)


@pytest.mark.parametrize("action_shape", [(), (1,), (2, 3)])
def test_gaussian_heads_give_means_in_the_shape_of_the_action(action_shape):
    generator = torch.Generator().manual_seed(0)
    model = PgModel(encoder((12, 10)), GaussianHead(action_shape, -0.5), (8,), seed=generator)
    (mean, log_std), value = model(pixels(7, 12, 10))
    assert (mean.shape, value.shape) == ((7, *action_shape), (7,))
    assert torch.equal(log_std.detach(), torch.full(action_shape, -0.5))
