"""Models of CleanRL act by their weights alone; other files are refused."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from cleanrl_models import ContinuousAgent, DiscreteAgent, computed, saved
from gymnasium import spaces

from parllel.distributed.operators.workers.cleanrl_policy import CleanRlPolicy
from parllel.distributed.operators.workers.rl_worker import normalized
from parllel.torch.state_dict_file import read_state_dict

SEEN = spaces.Box(-np.inf, np.inf, (4,))
FIVE = spaces.Box(-1, 1, (5,))
TWO = spaces.Discrete(2)
POWER = spaces.Box(-2.0, 2.0, (1,))


@pytest.fixture(autouse=True)
def same_models():
    torch.manual_seed(0)


def weights_of(agent):
    return {name: tensor.numpy().copy() for name, tensor in agent.state_dict().items()}


def observations(n, size=4):
    return np.random.default_rng(0).normal(size=(n, size)).astype(np.float32)


def test_the_layers_are_those_of_the_file(tmp_path):
    agent = DiscreteAgent()
    policy = CleanRlPolicy.from_file(saved(tmp_path / "ppo.cleanrl_model", agent), SEEN, TWO)
    for seen in observations(20):
        found = policy.outputs(seen)
        np.testing.assert_allclose(found, computed(weights_of(agent), "actor", seen), atol=1e-6)
        expected = agent.actor(torch.from_numpy(seen)).detach().numpy()
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_discrete_actions_are_drawn_with_the_probabilities_of_the_logits():
    agent = DiscreteAgent(n_actions=3)
    with torch.no_grad():
        agent.actor[4].bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
    policy = CleanRlPolicy(weights_of(agent), SEEN, spaces.Discrete(3))
    seen = observations(1)[0]
    policy.reset([0], [3])
    drawn = [int(policy.act_one(seen)) for _ in range(5000)]
    probabilities = torch.softmax(agent.actor(torch.from_numpy(seen)), -1).detach().numpy()
    # Four standard errors.
    np.testing.assert_allclose(np.bincount(drawn) / 5000, probabilities, atol=0.03)


def test_continuous_actions_are_normal_and_clipped():
    agent = ContinuousAgent()
    policy = CleanRlPolicy(weights_of(agent), spaces.Box(-1, 1, (3,)), POWER)
    seen = observations(1, 3)[0]
    policy.reset([0], [3])
    drawn = np.array([policy.act_one(seen) for _ in range(4000)])
    mean = agent.actor_mean(torch.from_numpy(seen)).item()
    assert drawn.mean() == pytest.approx(mean, abs=0.04)
    assert drawn.std() == pytest.approx(np.exp(-0.5), abs=0.03)
    assert drawn.dtype == np.float32
    assert POWER.contains(drawn[0])
    with torch.no_grad():
        agent.actor_mean[4].bias.fill_(100.0)
    policy = CleanRlPolicy(weights_of(agent), spaces.Box(-1, 1, (3,)), POWER)
    np.testing.assert_array_equal(policy.act_one(seen), np.float32([2.0]))


def test_greedy_takes_the_best():
    agent, power = DiscreteAgent(), ContinuousAgent()
    policy = CleanRlPolicy(weights_of(agent), SEEN, TWO, greedy=True)
    seen = observations(10)
    logits = np.array([computed(weights_of(agent), "actor", one) for one in seen])
    np.testing.assert_array_equal(policy.act(seen, range(10)), logits.argmax(1))
    policy = CleanRlPolicy(weights_of(power), spaces.Box(-1, 1, (3,)), POWER, greedy=True)
    expected = computed(weights_of(power), "actor_mean", seen[0, :3])
    np.testing.assert_allclose(policy.act_one(seen[0, :3]), expected, atol=1e-6)


def test_what_is_drawn_follows_from_the_seed_of_the_episode():
    policy = CleanRlPolicy(weights_of(DiscreteAgent()), SEEN, TWO)
    seen = observations(200)

    def drawn(seed, number=0):
        policy.reset([number], [seed])
        return [int(policy.act_one(one, number)) for one in seen]

    assert drawn(5) == drawn(5, 3)
    assert drawn(5) != drawn(6)
    policy.reset([0, 1], [5, 6])
    together = np.array([policy.act(np.stack([one, one]), [0, 1]) for one in seen])
    assert together.T.tolist() == [drawn(5), drawn(6)]


def test_observations_are_normalized_as_the_script_does_it():
    env, plain = normalized(gym.make("Pendulum-v1")), gym.make("Pendulum-v1")
    seen, raw = [env.reset(seed=0)[0]], [plain.reset(seed=0)[0]]
    for _ in range(30):
        seen.append(env.step([0.5])[0])
        raw.append(plain.step([0.5])[0])
    mean, var, count = np.zeros(3), np.ones(3), 1e-4
    for shown, one in zip(seen, raw, strict=True):
        # Chan et al.'s update by one number, from which the script begins.
        delta, total = one - mean, count + 1
        mean = mean + delta / total
        var = (var * count + delta**2 * count / total) / total
        count = total
        expected = np.clip((one - mean) / np.sqrt(var + 1e-8), -10, 10)
        np.testing.assert_allclose(shown, expected, rtol=1e-3, atol=1e-3)
    env.close()
    plain.close()


def changed(**values):
    weights = weights_of(DiscreteAgent())
    weights.update({name.replace("_", "."): value for name, value in values.items()})
    return weights


@pytest.mark.parametrize(
    ("weights", "observed", "acted", "match"),
    [
        (changed(), FIVE, TWO, r"actor.0.weight: expected float32 \[64, 5\].*got float32 \[64, 4\]"),
        (changed(), SEEN, spaces.Discrete(3), r"actor.4.weight: expected float32 \[3, 64\]"),
        (changed(), SEEN, POWER, "a model of ppo.py acts in a Discrete, but the action space .* is Box"),
        (changed(), spaces.Discrete(4), TWO, "expected a Box as observation space, got Discrete"),
        (changed(actor_0_bias=np.zeros(3, np.float32)), SEEN, TWO, r"actor.0.bias: expected float32 \[64\]"),
        (changed(critic_0_bias=np.zeros(3)), SEEN, TWO, r"critic.0.bias: expected float32 \[64\]"),
        (changed(actor_0_weight=np.zeros((), np.float32)), SEEN, TWO, "actor.0.weight: expected"),
        (changed(actor_2_bias=np.full(64, np.nan)), SEEN, TWO, "actor.2.bias: contains values"),
        (changed(actor_0_bias=np.zeros(64, np.int64)), SEEN, TWO, "actor.0.bias: expected .* got int64"),
        ({"fc.weight": np.zeros(3)}, SEEN, TWO, "a model of CleanRL's ppo.py or .* 1 weights: fc.weight"),
        ({}, SEEN, TWO, "got 0 weights: none"),
    ],
)  # fmt: skip
def test_other_weights_are_refused(weights, observed, acted, match):
    with pytest.raises(ValueError, match=match):
        CleanRlPolicy(weights, observed, acted)


class Executed:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (lambda path: path.write_text("no model"), "expected only weights, as written by torch.save"),
        (lambda path: path.write_bytes(b""), "expected only weights"),
        (lambda path: torch.save(DiscreteAgent(), path), "expected only weights"),
        (lambda path: path.write_bytes(pickle.dumps(Executed(), 2)), "expected only weights"),
        (lambda path: torch.save({"weights": Executed()}, path), "expected only weights"),
        (lambda path: torch.save([1, 2], path), "expected a state dict, got a list"),
        (lambda path: torch.save({"model": {}, "step": 3}, path), r"got also \['model', 'step'\]"),
    ],
)  # fmt: skip
def test_files_of_anything_else_are_refused_and_not_executed(tmp_path, capsys, write, match):
    path = tmp_path / "model.pt"
    write(path)
    with pytest.raises(ValueError, match=match) as caught:
        read_state_dict(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.pt: there is no such file"):
        read_state_dict(tmp_path / "gone.pt")


def test_weights_of_half_precision_are_read(tmp_path):
    agent = DiscreteAgent().to(torch.bfloat16)
    policy = CleanRlPolicy.from_file(saved(tmp_path / "half.pt", agent), SEEN, TWO)
    expected = computed(read_state_dict(tmp_path / "half.pt"), "actor", np.ones(4))
    np.testing.assert_allclose(policy.outputs(np.ones(4)), expected, atol=1e-5)
