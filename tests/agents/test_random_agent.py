from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

from parllel.agents import RandomAgent
from parllel.buffers import NamedTuple, buffer_leaves

INF = np.inf
SPACES = {
    "discrete": spaces.Discrete(5, start=-2),
    "multi-discrete": spaces.MultiDiscrete([2, 7, 3]),
    "multi-discrete, 2-d": spaces.MultiDiscrete([[2, 7], [3, 1]]),
    "multi-binary": spaces.MultiBinary((2, 3)),
    "box": spaces.Box(np.float32([-1, 0]), np.float32([1, 10])),
    "box, one dimension": spaces.Box(-2.0, 2.0, (1,)),
    "box, half bounded": spaces.Box(np.float32([-INF, 3, -INF]), np.float32([-1, INF, INF])),
    "box, largest floats": spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (2,)),
    "box, uint8": spaces.Box(0, 255, (2, 2), np.uint8),
    "box, uint64": spaces.Box(0, 2**64 - 1, (2,), np.uint64),
    "dict": spaces.Dict(
        arm=spaces.Box(-1, 1, (2,)), hand=spaces.Dict(grip=spaces.Discrete(3, start=1))
    ),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (3,)))),
}


def cell(tree, t, b):
    """Return the action of one cell as the space itself would have made it."""
    if isinstance(tree, NamedTuple):
        return {name: cell(value, t, b) for name, value in tree._asdict().items()}
    if isinstance(tree, tuple):
        return tuple(cell(value, t, b) for value in tree)
    return tree[t, b]


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())
def test_actions_lie_in_the_space(space):
    T, B = 30, 8
    noise = RandomAgent(space, seed=0).draw_noise(T, B)
    assert all(cell(noise, t, b) in space for t in range(T) for b in range(B))
    leaves = [leaf for _, leaf in buffer_leaves(noise)]
    assert all(leaf.shape[:2] == (T, B) for leaf in leaves)
    assert all(len(np.unique(leaf)) > 1 for leaf in leaves)


def test_dtypes_are_those_of_the_space():
    for name in ("box", "box, uint8", "multi-binary", "multi-discrete"):
        assert RandomAgent(SPACES[name], 0).draw_noise(1, 1).dtype == SPACES[name].dtype
    assert RandomAgent(SPACES["discrete"], 0).draw_noise(1, 1).dtype == np.int64


def test_draws_are_uniform_within_bounds():
    discrete = RandomAgent(SPACES["discrete"], 0).draw_noise(1000, 100)
    values, counts = np.unique(discrete, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert (abs(counts / 100_000 - 0.2) < 0.01).all()
    box = RandomAgent(SPACES["box"], 0).draw_noise(1000, 100)
    np.testing.assert_allclose(box.mean((0, 1)), [0, 5], atol=0.05)
    np.testing.assert_allclose(box.std((0, 1)), np.array([2, 10]) / 12**0.5, rtol=0.02)


def test_noise_is_the_action():
    agent = RandomAgent(SPACES["dict"], 0)
    noise = agent.draw_noise(4, 3)
    action, info = agent.step(np.zeros((3, 2)), noise=noise)
    assert action is noise
    assert info is None


def test_without_noise_the_agent_draws_for_as_many_as_there_are():
    agent = RandomAgent(SPACES["tuple"], 0)
    (choice, point), _ = agent.step({"a": np.zeros((7, 2)), "b": np.zeros(7)})
    assert choice.shape == (7,)
    assert point.shape == (7, 3)


def test_seeds_decide():
    draw = [RandomAgent(SPACES["box"], seed).draw_noise(5, 4) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert not np.array_equal(draw[0], draw[2])


def test_evaluation_leaves_the_sampled_actions_as_they_would_have_been():
    agent, undisturbed = RandomAgent(SPACES["box"], 1), RandomAgent(SPACES["box"], 1)
    agent.eval_mode()
    evaluated = [agent.step(np.zeros((4, 1)))[0] for _ in range(2)]
    assert not np.array_equal(*evaluated)
    agent.sample_mode()
    np.testing.assert_array_equal(agent.draw_noise(5, 4), undisturbed.draw_noise(5, 4))


def test_state_round_trip_through_json():
    agent, other = RandomAgent(SPACES["box"], 1), RandomAgent(SPACES["box"], 2)
    agent.draw_noise(3, 3)
    other.load_state(json.loads(json.dumps(agent.state())))
    np.testing.assert_array_equal(agent.draw_noise(5, 4), other.draw_noise(5, 4))
    agent.eval_mode()
    other.eval_mode()
    np.testing.assert_array_equal(agent.draw_noise(5, 4), other.draw_noise(5, 4))


def test_unknown_spaces_are_refused_at_once():
    space = spaces.Dict(text=spaces.Text(4))
    with pytest.raises(TypeError, match=r"expected a space of kind Discrete, .*, got Text"):
        RandomAgent(space, 0)
