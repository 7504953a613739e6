from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from parllel.torch import CategoricalHead, GaussianHead, PgModel
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.ensemble import EnsembleDistribution
from parllel.torch.distributions.gaussian import Gaussian, GaussianParams
from parllel.torch.distributions.multi_discrete import MultiDiscrete

N = 50


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def gaussian_params(seed, log_std_shape=(N, 3)):
    return GaussianParams(random(N, 3, seed=seed), 0.5 * random(*log_std_shape, seed=seed + 50))


def diagonal(params):
    return reference.Independent(reference.Normal(params.mean, params.log_std.exp()), 1)


CASES = {
    "categorical": (
        Categorical(5),
        random(N, 5, seed=1) * 3,
        random(N, 5, seed=2) * 3,
        lambda logits: reference.Categorical(logits=logits),
    ),
    "gaussian": (Gaussian((3,)), gaussian_params(3), gaussian_params(4), diagonal),
    "gaussian, one log_std": (
        Gaussian((3,)),
        gaussian_params(3, (3,)),
        gaussian_params(4, (3,)),
        diagonal,
    ),
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    return request.param


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6, check_dtype=True)


def test_log_prob_and_entropy_are_those_of_torch(case):
    distribution, p, _, as_reference = case
    action = as_reference(p).sample()
    close(distribution.log_prob(p, action), as_reference(p).log_prob(action))
    close(distribution.entropy(p), as_reference(p).entropy())
    both = distribution.log_prob_and_entropy(p, action)
    close(both[0], as_reference(p).log_prob(action))
    close(both[1], as_reference(p).entropy())


def test_kl_divergence_is_that_of_torch(case):
    distribution, p, q, as_reference = case
    theirs = reference.kl_divergence(as_reference(p), as_reference(q))
    close(distribution.kl_divergence(p, q), theirs)
    assert (distribution.kl_divergence(p, q) > 0.01).all()
    close(distribution.kl_divergence(p, p), torch.zeros(N, dtype=torch.float64))


def test_multi_discrete_is_the_product_of_its_choices():
    distribution = MultiDiscrete((2, 4, 3))
    p, q = random(N, 9, seed=1), random(N, 9, seed=2)
    parts = [
        (reference.Categorical(logits=p[:, a:b]), reference.Categorical(logits=q[:, a:b]))
        for a, b in ((0, 2), (2, 6), (6, 9))
    ]
    action = torch.stack([mine.sample() for mine, _ in parts], dim=-1)
    likelihood = torch.ones(N, dtype=torch.float64)
    for i, (mine, _) in enumerate(parts):
        likelihood *= mine.probs[torch.arange(N), action[:, i]]
    close(distribution.log_prob(p, action).exp(), likelihood)
    close(distribution.entropy(p), sum(mine.entropy() for mine, _ in parts))
    close(
        distribution.kl_divergence(p, q),
        sum(reference.kl_divergence(mine, other) for mine, other in parts),
    )
    assert distribution.draw_noise(generator(), 6, 4).shape == (6, 4, 9)
    sampled = distribution.sample(p, torch.zeros(N, 9))
    assert torch.equal(sampled, distribution.mode(p))
    assert torch.equal(sampled[:, 1], p[:, 2:6].argmax(-1))


@pytest.mark.parametrize("action_shape", [(), (3,), (2, 3)])
def test_likelihood_ratio_is_a_product_over_action_dimensions(action_shape):
    distribution = Gaussian(action_shape)
    p, q = [
        GaussianParams(random(N, *action_shape, seed=i), random(*action_shape, seed=i + 10))
        for i in (1, 2)
    ]
    action = random(N, *action_shape, seed=5)

    def density(params):
        std = np.exp(params.log_std.numpy())
        z = (action.numpy() - params.mean.numpy()) / std
        each = np.exp(-0.5 * z**2) / (std * np.sqrt(2 * np.pi))
        return each.reshape(N, -1).prod(axis=1)

    ratio = (distribution.log_prob(p, action) - distribution.log_prob(q, action)).exp()
    np.testing.assert_allclose(ratio.numpy(), density(p) / density(q), rtol=1e-9)
    assert distribution.entropy(p).shape == distribution.kl_divergence(p, q).shape == (N,)


def test_categorical_samples_have_the_probabilities_asked_for():
    logits = torch.tensor([0.0, 1.0, -2.0, 3.0])
    n = 200_000
    noise = Categorical(4).draw_noise(generator(1), n // 100, 100)
    action = Categorical(4).sample(logits, noise)
    assert action.dtype == torch.int64
    assert action.shape == (n // 100, 100)
    frequency = np.bincount(action.reshape(-1).numpy(), minlength=4) / n
    expected = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum()
    # Five standard deviations of a binomial share.
    assert (abs(frequency - expected) < 5 * np.sqrt(expected * (1 - expected) / n)).all()


def test_gaussian_samples_have_the_moments_asked_for():
    mean = torch.tensor([1.0, -2.0])
    params = GaussianParams(mean, torch.tensor([0.3, -1.0]))
    noise = Gaussian((2,)).draw_noise(generator(1), 1000, 100)
    action = Gaussian((2,)).sample(params, noise).reshape(-1, 2)
    std = params.log_std.exp()
    assert ((action.mean(0) - mean).abs() < 5 * std / 100_000**0.5).all()
    torch.testing.assert_close(action.std(0), std, rtol=0.02, atol=0)
    assert torch.equal(Gaussian((2,)).mode(params), mean)


@pytest.mark.parametrize("distribution", [Categorical(3), Gaussian((2,)), MultiDiscrete((2, 2))])
def test_noise_is_made_from_the_generator_alone(distribution):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = distribution.draw_noise(generator(7), 5, 4)
    assert torch.equal(first, distribution.draw_noise(generator(7), 5, 4))
    assert not torch.equal(first, distribution.draw_noise(generator(8), 5, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert first.isfinite().all()


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_large_logits_stay_finite(scale):
    logits = torch.tensor([[scale, 0.0, -scale], [-scale, -scale, -scale]], requires_grad=True)
    distribution = Categorical(3)
    log_prob, entropy = distribution.log_prob_and_entropy(logits, torch.tensor([0, 1]))
    expected = torch.tensor([0.0, np.log(1 / 3)], dtype=torch.float32)
    torch.testing.assert_close(log_prob.detach(), expected)
    torch.testing.assert_close(entropy.detach(), -expected)
    (log_prob + entropy + distribution.kl_divergence(logits, logits)).sum().backward()
    assert logits.grad.isfinite().all()


def test_masked_logits_are_never_drawn_and_leave_gradients_finite():
    inf = float("inf")
    distribution = Categorical(4)
    masked = torch.tensor([[0.5, -inf, 1.0, -inf]], requires_grad=True)
    small = torch.tensor([[0.5, 1.0]])
    noise = distribution.draw_noise(generator(), 1000, 1)
    assert set(distribution.sample(masked, noise).flatten().tolist()) == {0, 2}
    log_prob, entropy = distribution.log_prob_and_entropy(masked, torch.tensor([2]))
    close(log_prob.detach(), reference.Categorical(logits=small).log_prob(torch.tensor([1])))
    close(entropy.detach(), reference.Categorical(logits=small).entropy())
    other = torch.tensor([[0.0, -inf, -1.0, -inf]])
    divergence = distribution.kl_divergence(masked, other)
    close(
        divergence.detach(),
        reference.kl_divergence(
            reference.Categorical(logits=small),
            reference.Categorical(logits=torch.tensor([[0.0, -1.0]])),
        ),
    )
    (log_prob + entropy + divergence).sum().backward()
    assert masked.grad.isfinite().all()
    assert masked.grad[0, [1, 3]].abs().sum() == 0
    assert distribution.log_prob(masked, torch.tensor([1])).item() == -inf
    assert distribution.kl_divergence(torch.zeros(1, 4), other).item() == inf


def test_gradients_match_those_of_torch(case):
    distribution, p, q, as_reference = case
    leaves = [part.clone().requires_grad_() for part in (p if isinstance(p, tuple) else (p,))]
    params = GaussianParams(*leaves) if isinstance(p, tuple) else leaves[0]
    action = as_reference(p).sample()
    ours = distribution.log_prob(params, action) + distribution.entropy(params)
    ours = ours + distribution.kl_divergence(params, q)
    theirs = as_reference(params).log_prob(action) + as_reference(params).entropy()
    theirs = theirs + reference.kl_divergence(as_reference(params), as_reference(q))
    mine = torch.autograd.grad(ours.sum(), leaves)
    for a, b in zip(mine, torch.autograd.grad(theirs.sum(), leaves), strict=True):
        close(a, b)


def test_int32_actions_are_accepted():
    logits = random(N, 5)
    action = torch.randint(0, 5, (N,), generator=generator())
    distribution = Categorical(5)
    assert torch.equal(
        distribution.log_prob(logits, action.int()), distribution.log_prob(logits, action)
    )


def test_sizes_below_one_are_refused():
    with pytest.raises(ValueError, match="Categorical: n: expected at least 1 action, got 0"):
        Categorical(0)
    with pytest.raises(ValueError, match="nvec: expected at least one choice"):
        MultiDiscrete(())


@pytest.mark.parametrize(
    ("plain", "shifted", "start"),
    [
        (Categorical(5), Categorical(5, start=-3), -3),
        (MultiDiscrete((2, 3)), MultiDiscrete((2, 3), start=(4, -1)), torch.tensor([4, -1])),
    ],
)
def test_actions_count_from_start(plain, shifted, start):
    logits = 3 * random(N, 5, seed=1)
    noise = plain.draw_noise(generator(), 1, N)[0]
    action, log_prob = shifted.sample_and_log_prob(logits, noise)
    assert action.dtype == torch.int64
    for ours, theirs in (
        (action, plain.sample(logits, noise) + start),
        (shifted.sample(logits, noise), plain.sample(logits, noise) + start),
        (shifted.mode(logits), plain.mode(logits) + start),
        (log_prob, plain.log_prob(logits, plain.sample(logits, noise))),
        (shifted.log_prob(logits, action), log_prob),
        (shifted.log_prob_and_entropy(logits, action)[0], log_prob),
        (shifted.log_prob_and_entropy(logits, action)[1], plain.entropy(logits)),
    ):
        torch.testing.assert_close(ours, theirs)
    assert all(shifted.action_space.contains(one) for one in action.numpy())
    assert (action.min(dim=0).values == torch.as_tensor(start)).all()


def test_spaces_of_distributions():
    assert Categorical(3, start=2).action_space == spaces.Discrete(3, start=2)
    assert MultiDiscrete((2, 3)).action_space == spaces.MultiDiscrete([2, 3])
    assert Gaussian((2,)).action_space == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    parts = {"a": Categorical(3), "b": Gaussian((1,))}
    expected = spaces.Dict({name: part.action_space for name, part in parts.items()})
    assert EnsembleDistribution(parts).action_space == expected

    class Unknown(Categorical):
        action_space = None

    assert EnsembleDistribution({**parts, "c": Unknown(2)}).action_space is None


def test_a_start_is_needed_for_each_choice():
    with pytest.raises(ValueError, match=r"start: expected 2 numbers, got \[1\]"):
        MultiDiscrete((2, 3), start=(1,))


def test_a_number_is_the_shape_of_so_many_numbers():
    for n in (3, np.int64(3), [3]):
        assert Gaussian(n).action_shape == (3,)
    model = PgModel(4, GaussianHead(3, initial_log_std=0.0), (8,), seed=0)
    expected = PgModel((4,), GaussianHead((3,), initial_log_std=0.0), (8,), seed=0)
    observation = random(N, 4, seed=1).float()
    for one, other in zip(model(observation).params, expected(observation).params, strict=True):
        assert torch.equal(one, other)
    assert PgModel(4, CategoricalHead(3), (8,), seed=0)(observation).params.shape == (N, 3)


@pytest.mark.parametrize("wrong", [2.5, "3", None, (2, 2.5)])
def test_what_is_no_shape_is_refused(wrong):
    with pytest.raises(
        TypeError, match=r"^Gaussian: action_shape: expected a shape such as \(3,\)"
    ):
        Gaussian(wrong)
    with pytest.raises(TypeError, match=r"^PgModel: trunk: expected a shape such as \(3,\) or 3"):
        PgModel(wrong, CategoricalHead(3), (8,), seed=0)


@pytest.mark.parametrize(
    ("distribution", "params", "action", "said"),
    [
        (
            Categorical(2),
            random(N, 3),
            torch.zeros(N, dtype=torch.int64),
            r"\[\.\.\., 2\], got \(50, 3\)",
        ),
        (
            Categorical(2),
            random(N, 1),
            torch.zeros(N, dtype=torch.int64),
            r"\[\.\.\., 2\], got \(50, 1\)",
        ),
        (
            Gaussian(2),
            GaussianParams(random(N, 1), random(1)),
            random(N, 2),
            r"\[\.\.\., 2\], got \(50, 1\)",
        ),
    ],
)
def test_parameters_of_another_number_of_actions_do_not_broadcast(
    distribution, params, action, said
):
    with pytest.raises(ValueError, match=said):
        distribution.log_prob_and_entropy(params, action)
