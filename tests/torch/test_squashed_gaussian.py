from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution

from parllel.torch import SquashedGaussian
from parllel.torch.box_scale import BoxScale

BOX = Box(np.array([-1, -0.5], np.float32), np.array([3, 0.5], np.float32))


def params_of(n=50, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # Small, so that the reference stays away from the bounds and no deviation is clipped.
    return 0.4 * torch.randn(n, 4, generator=generator, dtype=torch.float64)


def reference(params, low=(-1.0, -0.5), high=(3.0, 0.5)):
    mean, log_std = params[:, :2], params[:, 2:]
    low, high = (torch.tensor(x, dtype=torch.float64) for x in (low, high))
    transforms = [TanhTransform(), AffineTransform((high + low) / 2, (high - low) / 2)]
    return TransformedDistribution(Normal(mean, log_std.exp()), transforms)


def test_density_is_that_of_the_transformed_normal():
    params = params_of()
    distribution = SquashedGaussian(BOX)
    noise = distribution.draw_noise(torch.Generator().manual_seed(1), 1, 50)[0]
    action = distribution.sample(params, noise)
    assert BOX.low[0] < action[:, 0].min() < action[:, 0].max() < BOX.high[0]
    expected = reference(params).log_prob(action).sum(dim=-1)
    torch.testing.assert_close(
        distribution.log_prob(params, action), expected, rtol=1e-6, atol=1e-6
    )


def test_density_of_unit_actions_does_not_depend_on_the_bounds():
    params, noise = params_of(), torch.randn(50, 2, dtype=torch.float64)
    action, log_prob = SquashedGaussian(BOX).unit_sample_and_log_prob(params, noise)
    expected = reference(params, (-1.0, -1.0), (1.0, 1.0)).log_prob(action).sum(dim=-1)
    torch.testing.assert_close(log_prob, expected)
    other = SquashedGaussian(Box(-1, 1, (2,), np.float32)).unit_sample_and_log_prob(params, noise)
    torch.testing.assert_close(other[1], log_prob)


def test_gradients_of_a_sample():
    params, noise = params_of(5).requires_grad_(), torch.randn(5, 2, dtype=torch.float64)
    function = SquashedGaussian(BOX).unit_sample_and_log_prob
    assert torch.autograd.gradcheck(lambda p: function(p, noise), params)


def test_densities_far_from_zero_are_exact():
    # 1 - tanh(u)^2 would be 0 in float32 from u = 9 on.
    params = torch.tensor([[20.0, 0.0, 0.0, 0.0]])
    _, log_prob = SquashedGaussian(BOX).unit_sample_and_log_prob(params, torch.zeros(1, 2))
    # log(1 - tanh(20)^2) = log 4 - 40 up to rounding.
    expected = 2 * Normal(0.0, 1.0).log_prob(torch.tensor(0.0)) - (np.log(4) - 40)
    torch.testing.assert_close(log_prob[0], expected.to(torch.float32), rtol=1e-6, atol=1e-4)


def test_log_std_is_clipped():
    params = torch.tensor([[0.0, 0.0, 9.0, -90.0]])
    _, log_std = SquashedGaussian.split(params)
    assert log_std.tolist() == [[2.0, -20.0]]


def test_actions_on_a_bound_have_finite_densities():
    distribution = SquashedGaussian(BOX)
    log_prob = distribution.log_prob(torch.zeros(2, 4), torch.tensor([[3.0, 0.5], [9.0, -0.5]]))
    assert torch.isfinite(log_prob).all()


def test_divergence_is_that_of_the_normals():
    p, q = params_of(seed=1), params_of(seed=2)
    found = SquashedGaussian(BOX).kl_divergence(p, q)
    expected = torch.distributions.kl_divergence(
        Normal(p[:, :2], p[:, 2:].exp()), Normal(q[:, :2], q[:, 2:].exp())
    )
    torch.testing.assert_close(found, expected.sum(dim=-1))
    with pytest.raises(NotImplementedError, match="no closed form"):
        SquashedGaussian(BOX).entropy(p)


def test_the_mode_is_the_median():
    params = params_of(3)
    low, high = torch.tensor([-1.0, -0.5]), torch.tensor([3.0, 0.5])
    expected = params[:, :2].tanh() * (high - low) / 2 + (high + low) / 2
    torch.testing.assert_close(SquashedGaussian(BOX).mode(params), expected)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_scales_are_inverse(shape):
    box = Box(np.full(shape, -2, np.float32), np.full(shape, 1, np.float32))
    scale = BoxScale(box, "test")
    unit = torch.rand(7, scale.size, dtype=torch.float64) * 2 - 1
    action = scale.from_unit(unit)
    assert action.shape == (7, *shape)
    torch.testing.assert_close(scale.to_unit(action), unit)
    torch.testing.assert_close(action.reshape(7, -1), unit * 1.5 - 0.5)
    assert scale.from_unit(unit[0]).shape == shape


@pytest.mark.parametrize(
    ("space", "error", "match"),
    [
        (Discrete(3), TypeError, "expected actions of a Box of floats, got Discrete"),
        (Box(-1, 1, (2,), np.int32), TypeError, "Box of floats"),
        (Box(-np.inf, 1, (2,), np.float32), ValueError, "finite bounds"),
        (Box(1, 1, (2,), np.float32), ValueError, "low < high"),
    ],
)
def test_other_spaces_are_refused(space, error, match):
    with pytest.raises(error, match=match):
        SquashedGaussian(space)
