from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces as gs

from parllel.buffers import NamedTuple
from parllel.buffers.tree import named_map
from parllel.cages import Spaces, example_of
from parllel.seeding import Seeds
from parllel.torch import (
    PPO,
    CategoricalHead,
    CategoricalPgAgent,
    GaussianHead,
    PgAgent,
    PgModel,
    SmallPolicyHandler,
    TorchHandler,
    agent_for,
    agents_for,
)
from parllel.torch.models.cnn_encoder import (
    CONVOLUTIONS_2013,
    CONVOLUTIONS_2015,
    CONVOLUTIONS_SMALL,
)
from parllel.torch.models.tree_encoder import FlatEncoder, OneHotEncoder, TreeEncoder
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel.types import BatchSpec
from parllel_patterns import PPO_DEFAULTS, build_cages, build_eval_sampler, build_sampler

VECTOR = gs.Box(-1, 1, (3,), np.float32)
SCREEN = gs.Box(0, 255, (4, 40, 36), np.uint8)
VIEW = gs.Box(0, 255, (7, 7, 3), np.uint8)
OBSERVATIONS = {
    "vector": VECTOR,
    "matrix": gs.Box(-1, 1, (2, 3), np.float64),
    "bytes": gs.Box(0, 255, (128,), np.uint8),
    "screen": SCREEN,
    "view": VIEW,
    "discrete": gs.Discrete(5, start=2),
    "choices": gs.MultiDiscrete([3, 2]),
    "bits": gs.MultiBinary(4),
    "dict": gs.Dict({"items": VECTOR, "view": VIEW, "inner": gs.Dict({"keys": gs.Discrete(3)})}),
    "tuple": gs.Tuple([VECTOR, gs.Discrete(2)]),
}
ACTIONS = {
    "discrete": gs.Discrete(4),
    "from one": gs.Discrete(3, start=1),
    "choices": gs.MultiDiscrete([2, 3]),
    "bits": gs.MultiBinary(3),
    "box": gs.Box(-1, 1, (2,), np.float32),
    "matrix": gs.Box(-1, 1, (2, 2), np.float32),
}


class AnyEnv(gym.Env):
    """Show and take elements of given spaces; a step in the wrong space raises."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._left = 5
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._left -= 1
        return self.observation_space.sample(), 1.0, self._left == 0, False, {}


def agent(observation, action, **options):
    return agent_for(Spaces(observation, action, "test"), seeds=Seeds(0), **options)


def one(space):
    """Return the zero of a space as agents see it, leaves [1, ...]."""
    return named_map(lambda x: torch.from_numpy(np.array(x)[None]), example_of(space))


def train_a_batch(observation, action):
    spec, seeds = BatchSpec(T=8, B=2), Seeds(0)
    cages = build_cages(lambda: AnyEnv(observation, action), spec.B, seeds=seeds)
    learner = agent_for(cages[0].spaces, seeds=seeds)
    transforms = [EstimateAdvantage(0.9, 0.9), NormalizeAdvantage()]
    with build_sampler(spec, cages, TorchHandler(learner), [], transforms) as sampler:
        samples, trajs = sampler.collect_batch(0)
        before = [p.detach().clone() for p in learner.model.parameters()]
        ppo = PPO(learner, **PPO_DEFAULTS, seed=0)
        diagnostics = ppo.optimize_agent(spec.size, samples)
        eval_cages = build_cages(
            lambda: AnyEnv(observation, action), 2, seeds=seeds, name="evaluation"
        )
        with build_eval_sampler(eval_cages, sampler, 4) as evaluation:
            lengths = [traj.length for traj in evaluation.collect_batch(0)[1]]
    assert [traj.length for traj in trajs] == [5, 5]
    assert lengths == [5] * 4
    # The likelihoods of the first update are those of sampling, however the observations were stored.
    assert diagnostics["approx_kl"] < 0.05
    changed = [
        not torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True)
    ]
    return learner, changed


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_agents_learn_from_observations_of_every_space(name):
    _, changed = train_a_batch(OBSERVATIONS[name], gs.Discrete(2))
    assert all(changed)


@pytest.mark.parametrize("name", ACTIONS)
def test_agents_act_in_every_space(name):
    learner, changed = train_a_batch(VECTOR, ACTIONS[name])
    assert all(changed)
    assert learner.action_space.shape == ACTIONS[name].shape


@pytest.mark.parametrize("action", [gs.Discrete(2), gs.Box(-1, 1, (2,), np.float32)])
def test_vectors_are_seen_by_the_models_that_compiled_code_knows(action):
    made = agent(VECTOR, action, hidden_sizes=(8,), initial_log_std=-0.7)
    kind = CategoricalHead if isinstance(action, gs.Discrete) else GaussianHead
    assert type(made.model) is PgModel
    assert type(made.model.head) is kind
    SmallPolicyHandler(made).close()
    if kind is GaussianHead:
        assert made.model.head.log_std.tolist() == pytest.approx([-0.7, -0.7])
    again = PgModel((3,), CategoricalHead(2), (8,), seed=Seeds(0).integer("model"))
    if kind is CategoricalHead:
        for name, weight in again.state_dict().items():
            assert torch.equal(weight, made.model.state_dict()[name])


def test_a_gain_of_zero_begins_with_the_same_policy_everywhere():
    for observation in (VECTOR, VIEW):
        made = agent(observation, gs.Discrete(3), policy_gain=0.0)
        params, _ = made.model(torch.rand(5, *observation.shape))
        assert torch.equal(params, torch.zeros(5, 3))


def test_convolutions_fit_the_images():
    sizes = lambda made: [c.kernel_size[0] for c in made.model.encoder.convolutions]  # noqa: E731
    assert sizes(agent(SCREEN, gs.Discrete(2))) == list(CONVOLUTIONS_2015.kernel_sizes)
    assert sizes(agent(VIEW, gs.Discrete(2))) == list(CONVOLUTIONS_SMALL.kernel_sizes)
    chosen = agent(SCREEN, gs.Discrete(2), convolutions=CONVOLUTIONS_2013)
    assert sizes(chosen) == [8, 4]
    assert len(chosen.model.policy.layers) == 1  # nothing between features and logits
    rough = agent(SCREEN, gs.Discrete(2), compute_dtype=torch.bfloat16)
    assert rough.model.encoder.compute_dtype is torch.bfloat16


def test_choices_become_ones_and_parts_lie_side_by_side():
    encoder = TreeEncoder({"a": OneHotEncoder([3, 2], [0, 1]), "b": FlatEncoder((2, 2))})
    numbers = torch.arange(8).reshape(2, 2, 2)
    seen = NamedTuple(b=numbers, a=torch.tensor([[2, 1], [0, 2]], dtype=torch.int32))
    expected = [[0, 0, 1, 1, 0, 0, 1, 2, 3], [1, 0, 0, 0, 1, 4, 5, 6, 7]]
    assert encoder(seen).tolist() == expected
    assert encoder.n_features == 9
    with pytest.raises(ValueError, match="no field 'b'"):
        encoder(NamedTuple(a=seen.a))
    with pytest.raises(ValueError, match="TreeEncoder: expected at least one encoder, got none"):
        TreeEncoder({})


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (gs.Dict(a=gs.Discrete(2)), "agents_for takes those of several agents"),
        (
            gs.MultiDiscrete([[2, 2], [2, 2]]),
            "give a PgAgent a model and a Distribution of your own",
        ),
        (gs.Box(0, 9, (2,), np.int64), "or a Box of floats, got Box"),
    ],
)
def test_actions_without_a_usual_distribution_are_refused(action, message):
    with pytest.raises(TypeError, match=message):
        agent(VECTOR, action)


def test_observations_without_a_size_are_refused():
    with pytest.raises(TypeError, match="observations of a fixed size, got Text"):
        agent(gs.Text(5), gs.Discrete(2))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"spaces": [VECTOR]}, r"spaces: expected Spaces, got a list; give cages\[0\]\.spaces"),
        ({"spaces": None}, "spaces: expected Spaces, got a NoneType"),
        ({"seeds": 0}, "seeds: expected Seeds, got 0"),
        ({"hidden_sizes": 64}, r"hidden_sizes: expected ints, as in \(64, 64\), got 64"),
        ({"hidden_sizes": ("a",)}, r"hidden_sizes: expected ints, .* got \('a',\)"),
    ],
)
def test_arguments_of_another_type_are_named(wrong, message):
    right = {"spaces": Spaces(VECTOR, gs.Discrete(2), "env"), "seeds": Seeds(0)}
    with pytest.raises(TypeError, match="agent_for: " + message):
        agent_for(**{**right, **wrong})


@pytest.mark.parametrize("make", [TorchHandler, lambda agent: PPO(agent, **PPO_DEFAULTS, seed=0)])
def test_a_model_is_no_agent(make):
    model = agent(VECTOR, gs.Discrete(2)).model
    with pytest.raises(TypeError, match=r"agent: expected an .*gent.*, got a .*PgModel"):
        make(model)


# ---------------------------------------------------------------------- several agents


def team(n=2, observation=VECTOR, action=gs.Discrete(3)):  # noqa: B008
    names = [f"agent_{i}" for i in range(n)]
    each = gs.Dict(dict.fromkeys(names, observation)), gs.Dict(dict.fromkeys(names, action))
    return Spaces(*each, "team")


def test_independent_agents_have_models_of_their_own():
    made = agents_for(team(), seeds=Seeds(0), sharing="independent", hidden_sizes=(8,))
    assert made.names == ("agent_0", "agent_1")
    first, other = [made.agents[name].model.policy.layers[0].weight for name in made.names]
    assert first.shape == (8, 3)
    assert not torch.equal(first, other)


def test_agents_that_share_a_model_are_told_apart():
    made = agents_for(team(), seeds=Seeds(0), sharing="shared", policy_gain=1.0)
    action, info = made.step(NamedTuple(agent_0=torch.ones(4, 3), agent_1=torch.ones(4, 3)))
    assert action.agent_0.shape == info.value.agent_1.shape == (4,)
    assert not torch.equal(info.value.agent_0, info.value.agent_1)


def test_teams_that_cannot_share_are_refused():
    shared = {"seeds": Seeds(0), "sharing": "shared"}
    with pytest.raises(TypeError, match="expected Dict spaces by agent"):
        agents_for(Spaces(VECTOR, gs.Discrete(2), "one"), **shared)
    with pytest.raises(ValueError, match="expected observations that are vectors"):
        agents_for(team(observation=VIEW), **shared)
    odd = team()
    odd.observation["agent_1"] = gs.Box(-1, 1, (5,))
    with pytest.raises(ValueError, match="shared: expected equal observations"):
        agents_for(odd, **shared)
    odd = team()
    odd.action["agent_1"] = gs.Discrete(7)
    with pytest.raises(ValueError, match="shared: expected equal actions"):
        agents_for(odd, **shared)


def test_the_agent_of_the_seed_is_the_one_built_by_hand():
    made = agent(VECTOR, gs.Discrete(2))
    seeds = Seeds(0)
    model = PgModel((3,), CategoricalHead(2), (64, 64), seed=seeds.integer("model"))
    by_hand = CategoricalPgAgent(model, 2, seed=seeds.integer("agent"))
    observation = torch.rand(6, 3)
    (action, info), (expected, expected_info) = made.step(observation), by_hand.step(observation)
    assert torch.equal(action, expected)
    assert torch.equal(info.value, expected_info.value)
    assert torch.equal(info.log_prob, expected_info.log_prob)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", 0])
def test_a_gpu_that_is_not_there_is_refused(device):
    spaces, seeds = Spaces(VECTOR, gs.Discrete(2), "small"), Seeds(0)
    said = rf"^agent_for: device: expected one that PyTorch can use on this machine, got {device!r} \(.*\)"
    with pytest.raises(ValueError, match=said + "; give device='cpu'$"):
        agent_for(spaces, seeds=seeds, device=device)
    # The seeds are not drawn yet, so the mended call may follow.
    assert agent_for(spaces, seeds=seeds).device.type == "cpu"


@pytest.mark.parametrize(
    ("device", "kind"), [("gpu", ValueError), ("opengl", ValueError), (None, TypeError)]
)
def test_what_is_no_device_to_compute_on_is_refused(device, kind):
    two = Spaces(gs.Dict(a=VECTOR, b=VECTOR), gs.Dict(a=gs.Discrete(2), b=gs.Discrete(2)), "small")
    said = rf": device: expected one that PyTorch can .*, got {device!r} .*; give device='cpu'$"
    for sharing in ("independent", "shared"):
        with pytest.raises(kind, match="^agents_for" + said):
            agents_for(two, seeds=Seeds(0), sharing=sharing, device=device)
    agent = agent_for(Spaces(VECTOR, gs.Discrete(2), "small"), seeds=Seeds(0))
    with pytest.raises(kind, match="^PgAgent" + said):
        agent.copy_to_device(device)
    with pytest.raises(kind, match="^PgAgent" + said):
        PgAgent(agent.model, agent.distribution, seed=0, device=device)
